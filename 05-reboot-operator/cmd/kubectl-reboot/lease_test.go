package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A leader that was frozen for longer than its Lease does not release the Lease of the next one.
func TestOnlyTheHolderReleasesTheLease(t *testing.T) {
	client := fake.NewClientset()
	lock := func(identity string) *ownLock {
		return &ownLock{Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "n", Name: "lease"}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}}
	}
	first, second := lock("first"), lock("second")
	record := func(holder string) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}
	}
	require.NoError(t, first.Create(t.Context(), record("first")))
	_, _, err := second.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, second.Update(t.Context(), record("second")), "the Lease of the first has expired")

	_, _, err = first.Get(t.Context()) // as the elector does before it releases
	require.NoError(t, err)
	require.EqualError(t, first.Update(t.Context(), record("")), "not releasing n/lease, which second holds")
	now, _, err := second.Get(t.Context())
	require.NoError(t, err)
	require.Equal(t, "second", now.HolderIdentity)
	require.NoError(t, second.Update(t.Context(), record("")))
}

// A controller that could not take the Lease does not release it.
func TestWhoCouldNotTakeTheLeaseIsNotItsHolder(t *testing.T) {
	client := fake.NewClientset()
	lock := &ownLock{Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "n", Name: "lease"}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "second"},
	}}
	require.NoError(t, lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "first"}))
	_, _, err := lock.Get(t.Context())
	require.NoError(t, err)
	client.PrependReactor("update", "leases", forbid)
	require.ErrorContains(t, lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "second"}), "RBAC says no")
	require.EqualError(t, lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}), "not releasing n/lease, which first holds")
}

package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// testLock returns the lock of a controller with that identity.
func testLock(client *fake.Clientset, identity string) *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "n", Name: "lease"}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
}

func holds(t *testing.T, lock *resourcelock.LeaseLock) string {
	record, _, err := lock.Get(t.Context())
	require.NoError(t, err)
	return record.HolderIdentity
}

// A leader that was frozen for longer than its Lease does not release the Lease of the next one.
func TestOnlyTheHolderReleasesTheLease(t *testing.T) {
	client := fake.NewClientset()
	first, second := testLock(client, "first"), testLock(client, "second")
	require.NoError(t, release(t.Context(), first), "there is no Lease")
	require.NoError(t, first.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "first", LeaderTransitions: 3}))
	require.Equal(t, "first", holds(t, second))
	require.NoError(t, second.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "second", LeaderTransitions: 4}), "the Lease of the first has expired")

	require.NoError(t, release(t.Context(), first))
	require.Equal(t, "second", holds(t, first))
	require.NoError(t, release(t.Context(), second))
	record, _, err := second.Get(t.Context())
	require.NoError(t, err)
	require.Empty(t, record.HolderIdentity)
	require.Equal(t, 4, record.LeaderTransitions)
}

// The last renewal, whose answer nobody waited for, reached the API server just before the release.
func TestAReleaseAfterAConflict(t *testing.T) {
	client := fake.NewClientset()
	lock := testLock(client, "first")
	require.NoError(t, lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "first"}))
	conflicts := 0
	client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts++; conflicts > 1 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), "lease", errors.New("changed"))
	})
	require.NoError(t, release(t.Context(), lock))
	require.Empty(t, holds(t, lock))
}

func TestAReleaseThatFails(t *testing.T) {
	client := fake.NewClientset()
	lock := testLock(client, "first")
	require.NoError(t, lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "first"}))
	client.PrependReactor("update", "leases", forbid)
	err := release(t.Context(), lock)
	require.ErrorContains(t, err, "release the Lease n/lease")
	require.ErrorContains(t, err, "RBAC says no")
}

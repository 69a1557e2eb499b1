package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// testLease returns the Lease as a candidate has it.
func testLease(client *fake.Clientset, identity string) *lease {
	return &lease{fence: &fence{}, valid: 10 * time.Second, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "shared", Name: "secretsync-shared"}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}}
}

func record(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15, LeaderTransitions: 3}
}

// A leader that was frozen for longer than its Lease does not release the Lease of the next one.
func TestOnlyTheHolderReleasesTheLease(t *testing.T) {
	client := fake.NewClientset()
	first, second := testLease(client, "first"), testLease(client, "second")
	require.NoError(t, first.Create(t.Context(), record("first")))
	_, _, err := second.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, second.Update(t.Context(), record("second")), "the Lease of the first has expired")

	require.NoError(t, first.release(t.Context()))
	require.Equal(t, "second", holder(t, client))
	require.NoError(t, second.release(t.Context()))
	require.Empty(t, holder(t, client))
	released, _, err := first.Get(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, released.LeaderTransitions)
}

// A leader whose machine has hung does not lead again after somebody else has, not even if that one has released the Lease: it
// would go on with what it knew before.
func TestALostLeaseIsNotTakenBack(t *testing.T) {
	client := fake.NewClientset()
	first, second := testLease(client, "first"), testLease(client, "second")
	_, _, err := second.Get(t.Context())
	require.Error(t, err, "there is none")
	require.NoError(t, first.Create(t.Context(), record("first")))
	for _, next := range []*lease{second, testLease(client, "third")} {
		_, _, err = next.Get(t.Context())
		require.NoError(t, err)
		require.NoError(t, next.Update(t.Context(), record(next.Identity())), "it has only waited until now")
		require.NoError(t, next.release(t.Context()))

		_, _, err = first.Get(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, first.Update(t.Context(), record("first")), errLost)
		require.ErrorIs(t, first.Create(t.Context(), record("first")), errLost)
		require.Empty(t, holder(t, client))
		require.False(t, first.fence.holds(time.Now()), "its writes are refused")
	}
}

// A renewal that is written while the Lease is released does not keep it.
func TestTheReleaseOfALeaseIsRetried(t *testing.T) {
	client := fake.NewClientset()
	ours := testLease(client, "ours")
	require.NoError(t, ours.Create(t.Context(), record("ours")))
	conflict := apierrors.NewConflict(coordinationv1.Resource("leases"), "secretsync-shared", errors.New("it has been modified"))
	answers := []error{conflict, conflict}
	client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(answers) == 0 {
			return false, nil, nil
		}
		err := answers[0]
		answers = answers[1:]
		return true, nil, err
	})
	require.NoError(t, ours.release(t.Context()))
	require.Empty(t, holder(t, client))

	require.NoError(t, ours.Update(t.Context(), record("ours")))
	answers = []error{context.DeadlineExceeded}
	require.ErrorIs(t, ours.release(t.Context()), context.DeadlineExceeded)
	require.Equal(t, "ours", holder(t, client))
}

func TestALeaseKnowsThatItWasAcquired(t *testing.T) {
	client := fake.NewClientset()
	first, second := testLease(client, "first"), testLease(client, "second")
	require.Error(t, first.Update(t.Context(), record("first")), "it has not been read yet")
	require.False(t, first.acquired)
	require.NoError(t, first.Create(t.Context(), record("first")))
	require.True(t, first.acquired)
	require.Error(t, second.Create(t.Context(), record("second")), "it exists")
	_, _, err := second.Get(t.Context())
	require.NoError(t, err)
	require.False(t, second.acquired)
	require.NoError(t, second.Update(t.Context(), record("second")))
	require.True(t, second.acquired)
	require.NoError(t, second.release(t.Context()))
	require.True(t, second.acquired)
}

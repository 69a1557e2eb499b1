package nodes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"example.com/controllers/harness/machine"
)

func TestRenewALease(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0", UID: "first"}}
	client := fake.NewClientset()
	conflict := false // whether somebody else has just changed the Lease
	// Like the API server, which creates Leases on update, unless the update has the UID of one that is not there.
	client.PrependReactor("update", "leases", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if _, err := client.Tracker().Get(action.GetResource(), action.GetNamespace(), node.Name); err == nil && !conflict {
			return false, nil, nil
		}
		conflict = false
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, node.Name, nil)
	})
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	c := &leaseController{client: client}

	var renewed metav1.MicroTime
	renew := func(want ...string) {
		t.Helper()
		client.ClearActions()
		require.NoError(t, c.renew(t.Context(), node))
		var verbs []string
		for _, action := range client.Actions() {
			verbs = append(verbs, action.GetVerb())
		}
		require.Equal(t, want, verbs)
		lease, err := leases.Get(t.Context(), node.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, node.Name, *lease.Spec.HolderIdentity)
		require.Equal(t, int32(40), *lease.Spec.LeaseDurationSeconds)
		require.Equal(t, node.UID, lease.OwnerReferences[0].UID)
		require.True(t, lease.Spec.RenewTime.After(renewed.Time))
		renewed = *lease.Spec.RenewTime
	}
	renew("create")
	renew("update")
	for range 2 { // each incident twice
		conflict = true
		renew("update", "patch")
		renew("update")

		c = &leaseController{client: client} // after a restart
		renew("create", "patch")
		renew("update")

		// Another Node of that name, before the Lease of the first one is gone.
		node.UID += types.UID("-soon")
		renew("update")

		// A Node that is removed takes its Lease with it.
		require.NoError(t, leases.Delete(t.Context(), node.Name, metav1.DeleteOptions{}))
		node.UID += types.UID("-again")
		renew("update", "patch", "create")
		renew("update")
	}
}

// The Lease of a machine is renewed while it is powered on, and never while it is not.
func TestLeasesFollowThePower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		nodes := client.CoreV1().Nodes()
		factory := informers.NewSharedInformerFactory(client, 0)
		c, err := newLeaseController(client, factory.Core().V1().Nodes())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		factory.StartWithContext(ctx)
		factory.WaitForCacheSyncWithContext(ctx)
		done := make(chan struct{})
		go func() {
			c.run(ctx)
			close(done)
		}()
		renewals := func(of time.Duration) (count int) {
			t.Helper()
			synctest.Wait()
			client.ClearActions()
			time.Sleep(of)
			synctest.Wait()
			for _, action := range client.Actions() {
				if action.GetResource().Resource == "leases" {
					count++
				}
			}
			return count
		}
		machineThatIs := func(power string) *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0", Labels: map[string]string{machine.PowerLabel: power}}}
		}
		set := func(power string) {
			t.Helper()
			_, err := nodes.Update(t.Context(), machineThatIs(power), metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		_, err = nodes.Create(t.Context(), machineThatIs("off"), metav1.CreateOptions{})
		require.NoError(t, err)
		require.Zero(t, renewals(leaseDuration), "it has not been powered on")
		for range 2 {
			set("on")
			require.NotZero(t, renewals(2*leaseDuration), "it is on")
			require.GreaterOrEqual(t, renewals(leaseDuration), 3, "it is still on")
			set("off")
			require.Zero(t, renewals(leaseDuration), "it is off")
		}
		set("on")
		require.NotZero(t, renewals(leaseDuration))
		require.NoError(t, nodes.Delete(t.Context(), "node-0", metav1.DeleteOptions{}))
		require.Zero(t, renewals(leaseDuration), "it is gone")
		cancel()
		<-done
		factory.Shutdown()
	})
}

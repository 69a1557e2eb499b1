package informer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// watchPods starts the informer that is built by hand, and returns its store and a function that stops it.
func (c *fakeCluster) watchPods() (store cache.Store, stop func()) {
	ctx, cancel := context.WithCancel(c.context())
	store, controller := WatchPods(c.Clientset, namespace, LogPods(klog.FromContext(ctx)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.RunWithContext(ctx)
	}()
	synctest.Wait()
	return store, func() {
		cancel()
		<-done
	}
}

func TestHandmadeInformerLogsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.createPods("frontend-1")
		cluster.write(newPod("mall", "elsewhere-1", "frontend"))
		store, stop := cluster.watchPods()
		defer stop()
		require.Equal(t, []string{"shop/frontend-1"}, store.ListKeys())

		pending := newPod(namespace, "frontend-2", "frontend")
		pending.Spec.NodeName = ""
		cluster.write(pending)
		cluster.write(newPod("mall", "elsewhere-2", "frontend"))
		advance(time.Minute)
		pending.Spec.NodeName = "node-1"
		cluster.write(pending)
		advance(time.Minute)
		require.ElementsMatch(t, []string{"shop/frontend-1", "shop/frontend-2"}, store.ListKeys())
		cluster.remove(pending)
		advance(time.Minute)
		require.Equal(t, []string{"shop/frontend-1"}, store.ListKeys())
		require.Equal(t, []string{
			"onAdd pod=shop/frontend-1 node=node-0",
			"onAdd pod=shop/frontend-2 node=",
			"onUpdate pod=shop/frontend-2 node=node-1",
			"onUpdate pod=shop/frontend-2 node=node-1",
			"onDelete pod=shop/frontend-2 node=node-1",
		}, cluster.logged("on"))
	})
}

func TestHandmadeInformerLogsMissedDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.createPods("frontend-1", "frontend-2")
		store, stop := cluster.watchPods()
		defer stop()
		cluster.breakWatch("pods")
		cluster.remove(newPod(namespace, "frontend-1", "frontend"))
		advance(time.Minute)
		require.Equal(t, []string{"shop/frontend-2"}, store.ListKeys())
		require.Equal(t, []string{"onDelete, final state unknown pod=shop/frontend-1"}, cluster.logged("onDelete"))
	})
}

func TestHandmadeInformerHandlesTombstoneWithoutPod(t *testing.T) {
	cluster := newFakeCluster(t)
	handler := LogPods(klog.FromContext(cluster.context()))
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/frontend-1"})
	require.Equal(t, []string{"onDelete, final state unknown pod=shop/frontend-1"}, cluster.logged("on"))
}

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

// watchPods runs the informer that is put together by hand, and returns its store and what stops it.
func (w *world) watchPods() (store cache.Store, stop func()) {
	ctx, cancel := context.WithCancel(w.context())
	store, controller := WatchPods(w.Clientset, namespace, LogPods(klog.FromContext(ctx)))
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

func TestTheHandMadeInformerTellsWhatHappensToPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-1")
		w.write(newPod("mall", "elsewhere-1", "frontend"))
		store, stop := w.watchPods()
		defer stop()
		require.Equal(t, []string{"shop/frontend-1"}, store.ListKeys())

		waiting := newPod(namespace, "frontend-2", "frontend")
		waiting.Spec.NodeName = ""
		w.write(waiting)
		w.write(newPod("mall", "elsewhere-2", "frontend"))
		later(time.Minute)
		waiting.Spec.NodeName = "node-1"
		w.write(waiting)
		later(time.Minute)
		require.ElementsMatch(t, []string{"shop/frontend-1", "shop/frontend-2"}, store.ListKeys())
		w.remove(waiting)
		later(time.Minute)
		require.Equal(t, []string{"shop/frontend-1"}, store.ListKeys())
		require.Equal(t, []string{
			"onAdd pod=shop/frontend-1 node=node-0",
			"onAdd pod=shop/frontend-2 node=",
			"onUpdate pod=shop/frontend-2 node=node-1",
			"onUpdate pod=shop/frontend-2 node=node-1",
			"onDelete pod=shop/frontend-2 node=node-1",
		}, w.said("on"))
	})
}

func TestTheHandMadeInformerSaysThatItMissedADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-1", "frontend-2")
		store, stop := w.watchPods()
		defer stop()
		w.breakWatch("pods")
		w.remove(newPod(namespace, "frontend-1", "frontend"))
		later(time.Minute)
		require.Equal(t, []string{"shop/frontend-2"}, store.ListKeys())
		require.Equal(t, []string{"onDelete, missed pod=shop/frontend-1"}, w.said("onDelete"))
	})
}

func TestTheHandMadeInformerKnowsTombstonesWithoutAPod(t *testing.T) {
	w := newWorld(t)
	handler := LogPods(klog.FromContext(w.context()))
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/frontend-1"})
	require.Equal(t, []string{"onDelete, missed pod=shop/frontend-1"}, w.said("on"))
}

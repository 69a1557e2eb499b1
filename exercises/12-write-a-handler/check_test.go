//go:build exercise

package writeahandler

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a Pod is created", Play: func(w *check.World) {
			queue := start(w)
			w.Given(pod("web-1"))
			w.Settle()
			expect(w, queue, "shop/web-1", "Pod shop/web-1 was created")
		}},
		check.Scene{Name: "a Pod is changed", Play: func(w *check.World) {
			queue := start(w)
			changed := pod("web-0")
			changed.Labels, changed.Generation = map[string]string{"app": "web"}, 1 // as before: labels are not part of the spec
			w.Given(changed)
			w.Settle()
			expect(w, queue, "shop/web-0", "Pod shop/web-0 was changed")
		}},
		check.Scene{Name: "only the status of a Pod changes", Play: func(w *check.World) {
			queue := start(w)
			changed := pod("web-0")
			changed.Status.Phase = corev1.PodFailed
			w.Given(changed)
			w.Settle()
			expect(w, queue, "shop/web-0", "The phase of Pod shop/web-0, which is part of its status, changed to Failed")
		}},
		check.Scene{Name: "a Pod is deleted", Play: func(w *check.World) {
			queue := start(w)
			w.Delete("pods", "shop", "web-0")
			w.Settle()
			expect(w, queue, "shop/web-0", "Pod shop/web-0 was deleted")
		}},
		check.Scene{Name: "a Pod is deleted, and a finalizer holds it", Play: func(w *check.World) {
			queue := start(w)
			held := pod("web-0")
			held.Finalizers = []string{"example.com/volume"}
			w.Given(held)
			w.Settle()
			expect(w, queue, "shop/web-0", "Pod shop/web-0 got a finalizer")
			w.Delete("pods", "shop", "web-0")
			w.Settle()
			expect(w, queue, "shop/web-0", "Pod shop/web-0 is being deleted and waits for its finalizer")
		}},
		check.Scene{Name: "a Pod is deleted while a worker has its key", Play: func(w *check.World) {
			queue := start(w)
			changed := pod("web-0")
			changed.Labels = map[string]string{"app": "web"}
			w.Given(changed)
			w.Settle()
			if queue.Len() == 0 {
				w.Failf("Pod shop/web-0 was changed, and the queue is empty.")
			}
			key, _ := queue.Get()
			w.Say("a worker takes the key %s", key)
			w.Delete("pods", "shop", "web-0")
			w.Settle()
			if queue.Len() > 0 {
				w.Failf("Pod shop/web-0 was deleted while a worker was busy with its key. The queue would hand the key to a second worker at the same time.")
			}
			queue.Done(key)
			w.Settle()
			expect(w, queue, "shop/web-0", "Pod shop/web-0 was deleted while a worker was busy with its key, and the worker is done with it")
		}},
		check.Scene{Name: "a resync", Play: func(w *check.World) {
			queue := start(w)
			w.Say("the informer resyncs: it reports all Pods as updated, and none has changed")
			w.Advance(resync)
			if got := keys(queue); len(got) != 0 {
				w.Failf("No Pod has changed, and a resync added %v to the queue.", got)
			}
		}},
		check.Scene{Name: "a Pod is deleted while the watch is broken", Play: func(w *check.World) {
			queue := start(w)
			w.BreakWatches("pods", func() {
				w.Delete("pods", "shop", "web-0")
				w.Advance(10 * time.Second)
			})
			w.Advance(time.Minute)
			expect(w, queue, "shop/web-0", "Pod shop/web-0 was deleted while the watch was broken, and the watch is back")
		}},
		check.Scene{Name: "a tombstone without a Pod", Play: func(w *check.World) {
			queue := newQueue()
			defer queue.ShutDown()
			w.Say("the handler gets a tombstone that has the key shop/web-0 and no Pod")
			Handler(queue).OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/web-0"})
			expect(w, queue, "shop/web-0", "The handler got a tombstone without a Pod")
		}},
	)
}

// resync is the resync period of the informer.
const resync = time.Hour

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

func newQueue() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
}

// start starts an informer with the participant's handlers, in a world with one Pod, and returns the queue when it is
// empty.
func start(w *check.World) workqueue.TypedRateLimitingInterface[string] {
	w.Given(pod("web-0"))
	queue := newQueue()
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		factory := informers.NewSharedInformerFactory(client, resync)
		_, err := factory.Core().V1().Pods().Informer().AddEventHandlerWithResyncPeriod(Handler(queue), resync)
		if err != nil {
			return err
		}
		factory.StartWithContext(ctx)
		<-ctx.Done()
		factory.Shutdown()
		queue.ShutDown()
		return nil
	})
	w.Advance(time.Second)
	expect(w, queue, "shop/web-0", "Pod shop/web-0 existed when the informer was started")
	return queue
}

// keys returns the keys in the queue and empties it.
func keys(queue workqueue.TypedRateLimitingInterface[string]) []string {
	var keys []string
	for queue.Len() > 0 {
		key, _ := queue.Get()
		queue.Done(key)
		keys = append(keys, key)
	}
	return keys
}

func expect(w *check.World, queue workqueue.TypedRateLimitingInterface[string], key, why string) {
	switch got := keys(queue); {
	case len(got) == 0:
		w.Failf("%s, and the queue is empty.", why)
	case len(got) > 1 || got[0] != key:
		w.Failf("%s, and the queue has the keys %v; it should have %s.", why, got, key)
	}
}

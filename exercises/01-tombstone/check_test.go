//go:build exercise

package tombstone

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a Pod is deleted", Play: func(w *check.World) {
			released := start(w)
			w.Delete("pods", "shop", "web-0")
			w.Advance(time.Second)
			if !released("10.0.0.7") {
				w.Failf("Pod shop/web-0 was deleted, and its address 10.0.0.7 was not released.")
			}
		}},
		check.Scene{Name: "a Pod is deleted while the watch is broken", Play: func(w *check.World) {
			released := start(w)
			w.BreakWatches("pods", func() {
				w.Delete("pods", "shop", "web-0")
				w.Advance(10 * time.Second)
			})
			w.Advance(time.Minute)
			if !released("10.0.0.7") {
				w.Failf("Pod shop/web-0 was deleted while the watch was broken. A minute after the watch was back, its address 10.0.0.7 was not released.")
			}
		}},
	)
}

// start starts the controller in a world with one Pod, and returns a function that says whether it has released an address.
func start(w *check.World) func(address string) bool {
	w.Given(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"},
		Status:     corev1.PodStatus{PodIP: "10.0.0.7"},
	})
	var mu sync.Mutex
	released := map[string]bool{}
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return Run(ctx, client, func(address string) {
			mu.Lock()
			defer mu.Unlock()
			released[address] = true
			w.Say("the controller releases %s", address)
		})
	})
	w.Advance(time.Second)
	return func(address string) bool {
		mu.Lock()
		defer mu.Unlock()
		return released[address]
	}
}

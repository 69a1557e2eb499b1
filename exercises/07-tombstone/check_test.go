//go:build exercise

package tombstone

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "Pods come and go", Play: func(w *check.World) {
			counter := start(w)
			expect(w, counter, 2, "")
			w.Delete("pods", "shop", "web-0")
			w.Advance(time.Second)
			expect(w, counter, 1, "Pod shop/web-0 was deleted. ")
		}},
		check.Scene{Name: "a Pod is deleted while the watch is broken", Play: func(w *check.World) {
			counter := start(w)
			w.BreakWatches("pods", func() {
				w.Delete("pods", "shop", "web-0")
				w.Advance(10 * time.Second)
			})
			w.Advance(time.Minute)
			expect(w, counter, 1, "Pod shop/web-0 was deleted while the watch was broken. A minute after the watch was back: ")
			w.Delete("pods", "shop", "web-1")
			w.Advance(time.Second)
			expect(w, counter, 0, "Then Pod shop/web-1 was deleted. ")
		}},
		check.Scene{Name: "two Pods of the same name are deleted while the watch is broken", Play: func(w *check.World) {
			w.Given(pod("blog", "web-0", "node-2"), pod("blog", "db-0", "node-2"), pod("blog", "db-1", "node-3"))
			counter := start(w)
			w.BreakWatches("pods", func() {
				w.Delete("pods", "shop", "web-0")
				w.Delete("pods", "blog", "web-0")
				w.Advance(10 * time.Second)
			})
			w.Advance(time.Minute)
			const why = "Pods shop/web-0 and blog/web-0, which ran on node-1 and node-2, were deleted while the watch was broken. A minute after the watch was back: "
			expect(w, counter, 1, why)
			expectOn(w, counter, "node-2", 1, why)
			expectOn(w, counter, "node-3", 1, why)
		}},
		check.Scene{Name: "a Pod is replaced while the watch is broken", Play: func(w *check.World) {
			counter := start(w)
			w.BreakWatches("pods", func() {
				w.Delete("pods", "shop", "web-0")
				w.Delete("pods", "shop", "web-1")
				w.Given(pod("shop", "web-0", "node-1"), pod("shop", "web-1", "node-2"))
				w.Advance(10 * time.Second)
			})
			w.Advance(time.Minute)
			const why = "Pods shop/web-0 and shop/web-1 of node-1 were replaced by new ones, on node-1 and node-2, while the watch was broken. A minute after the watch was back: "
			expect(w, counter, 1, why)
			expectOn(w, counter, "node-2", 1, why)
		}},
		check.Scene{Name: "a Pod is created while the controller learns of a deletion that it has missed", Play: func(w *check.World) {
			counter := start(w)
			w.BreakWatches("pods", func() {
				w.Delete("pods", "shop", "web-0")
				w.Advance(10 * time.Second)
			})
			want, why := 1, "Pod shop/web-0 was deleted while the watch was broken. "
			w.Before("list", "pods", func() {
				w.Given(pod("shop", "web-2", "node-1"))
				want, why = 2, why+"Pod shop/web-2 was created right before the controller listed the Pods. "
			})
			w.Advance(time.Minute)
			expect(w, counter, want, why+"A minute later: ")
		}},
	)
}

func pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

func start(w *check.World) *Counter {
	w.Given(pod("shop", "web-0", "node-1"), pod("shop", "web-1", "node-1"))
	var counter *Counter
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		counter = New(client)
		return counter.Run(ctx)
	})
	w.Advance(time.Second)
	return counter
}

func expect(w *check.World, counter *Counter, want int, why string) {
	expectOn(w, counter, "node-1", want, why)
}

func expectOn(w *check.World, counter *Counter, node string, want int, why string) {
	if got := counter.Pods(node); got != want {
		w.Failf("%sThe controller's count of the Pods on %s is %d instead of %d.", why, node, got, want)
	}
}

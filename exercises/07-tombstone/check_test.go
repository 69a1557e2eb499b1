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
	)
}

func start(w *check.World) *Counter {
	for _, name := range []string{"web-0", "web-1"} {
		w.Given(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: "node-1"}})
	}
	var counter *Counter
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		counter = New(client)
		return counter.Run(ctx)
	})
	w.Advance(time.Second)
	return counter
}

func expect(w *check.World, counter *Counter, want int, why string) {
	if got := counter.Pods("node-1"); got != want {
		w.Failf("%sThe controller counts %d Pods on node-1, and there are %d.", why, got, want)
	}
}

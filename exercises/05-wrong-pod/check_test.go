//go:build exercise

package wrongpod

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
		check.Scene{Name: "a Node needs maintenance", Play: func(w *check.World) {
			w.Given(node("node-1", true), node("node-2", false), pod("db-0", "node-1"), pod("web-0", "node-2"))
			start(w)
			w.Advance(10 * time.Minute)
			if w.Exists("pods", "shop", "db-0") {
				w.Failf("Node node-1 needs maintenance, and ten minutes later Pod shop/db-0 is still running on it.")
			}
			if !w.Exists("pods", "shop", "web-0") {
				w.Failf("Pod shop/web-0 was deleted, although its Node needs no maintenance.")
			}
		}},
		check.Scene{Name: "a Pod moves during a reconcile", Play: func(w *check.World) {
			moves(w, "verb=get,resource=nodes,nth=1,delay=10s", "verb=list,resource=nodes,nth=1,delay=10s")
		}},
		check.Scene{Name: "a Pod moves while the request to delete it is on its way", Play: func(w *check.World) {
			moves(w, "verb=delete,resource=pods,nth=1,delay=10s", "verb=create,resource=pods,subresource=eviction,nth=1,delay=10s")
		}},
	)
}

// moves replaces a Pod while faults delay a request of the controller. It fails the check if the new Pod is deleted.
func moves(w *check.World, faults ...string) {
	w.Given(node("node-1", true), node("node-2", false), pod("db-0", "node-1"))
	w.Inject(faults...)
	start(w)
	w.Advance(5 * time.Second)
	w.Say("somebody else moves Pod shop/db-0 from node-1 to node-2")
	w.Delete("pods", "shop", "db-0")
	moved := pod("db-0", "node-2")
	check.Must(w.Client.CoreV1().Pods("shop").Create(context.Background(), moved, metav1.CreateOptions{}))
	w.Never(3*time.Minute, func() bool { return !w.Exists("pods", "shop", "db-0") },
		"Pod shop/db-0 had been replaced by a new Pod on node-2, which needs no maintenance. The controller deleted the new one.")
}

func node(name string, maintenance bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if maintenance {
		n.Labels = map[string]string{Maintenance: ""}
	}
	return n
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

func start(w *check.World) {
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Mover{Client: client, Namespace: "shop", Interval: time.Minute}).Run(ctx)
	})
}

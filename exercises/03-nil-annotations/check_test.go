//go:build exercise

package nilannotations

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
		check.Scene{Name: "a Node with annotations", Play: func(w *check.World) {
			w.Given(node("node-1", map[string]string{"owner": "ops"}))
			start(w)
			annotations := annotationsOf(w, "node-1")
			if annotations[FirstSeen] == "" {
				w.Failf("Node node-1 has no annotation first-seen ten minutes after the controller was started.")
			}
			if annotations["owner"] != "ops" {
				w.Failf("Node node-1 has lost its annotation owner.")
			}
		}},
		check.Scene{Name: "a Node without annotations", Play: func(w *check.World) {
			w.Given(node("node-1", map[string]string{"owner": "ops"}), node("node-2", nil), node("node-3", nil))
			start(w)
			for _, name := range []string{"node-2", "node-3"} {
				if annotationsOf(w, name)[FirstSeen] == "" {
					w.Failf("Node %s had no annotations. Ten minutes after the controller was started, it has no annotation first-seen.", name)
				}
			}
			if got := annotationsOf(w, "node-1"); got["owner"] != "ops" {
				w.Failf("Node node-1 has lost its annotation owner.")
			}
		}},
	)
}

func node(name string, annotations map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
}

func start(w *check.World) {
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Stamper{Client: client, Interval: time.Minute}).Run(ctx)
	})
	w.Advance(10 * time.Minute)
}

func annotationsOf(w *check.World, name string) map[string]string {
	return check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})).Annotations
}

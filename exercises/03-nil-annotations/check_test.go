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
		check.Scene{Name: "the time is that of the first look", Play: func(w *check.World) {
			w.Given(node("node-1", map[string]string{"owner": "ops"}), node("node-2", nil))
			began := time.Now()
			start(w)
			for _, name := range []string{"node-1", "node-2"} {
				stamp := annotationsOf(w, name)[FirstSeen]
				seen, err := time.Parse(time.RFC3339, stamp)
				if err != nil {
					w.Failf("The annotation first-seen of Node %s is %q, which is no time in the format of RFC 3339.", name, stamp)
				}
				if seen.Sub(began).Abs() > 2*time.Minute {
					w.Failf("The controller was started at %s, and by its annotation, Node %s was first seen at %s.", began.UTC().Format(time.RFC3339), name, stamp)
				}
				w.Advance(time.Hour)
				if now := annotationsOf(w, name)[FirstSeen]; now != stamp {
					w.Failf("The annotation first-seen of Node %s was %s. An hour later, it is %s, although the controller had seen the Node before.", name, stamp, now)
				}
			}
		}},
		check.Scene{Name: "one Node cannot be changed", Play: func(w *check.World) {
			w.Given(node("node-1", nil), node("node-2", nil))
			w.Inject("verb=update,resource=nodes,name=node-1,refuse=500", "verb=patch,resource=nodes,name=node-1,refuse=500")
			start(w)
			if annotationsOf(w, "node-2")[FirstSeen] == "" {
				w.Failf("The API server refused to change Node node-1. Ten minutes after the controller was started, Node node-2 has no annotation first-seen either.")
			}
		}},
		check.Scene{Name: "somebody else changes the Node at the same time", Play: func(w *check.World) {
			w.Given(node("node-1", map[string]string{"owner": "ops"}))
			cordon := func() {
				n := check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{}))
				n.Spec.Unschedulable = true
				n.Annotations["owner"] = "storage"
				check.Must(w.Client.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}))
			}
			w.Before("update", "nodes", cordon)
			w.Before("patch", "nodes", cordon)
			start(w)
			n := check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{}))
			if !n.Spec.Unschedulable || n.Annotations["owner"] != "storage" {
				w.Failf("Somebody cordoned Node node-1 and changed its annotation owner right before the controller wrote to it. The controller's write has undone that.")
			}
			if n.Annotations[FirstSeen] == "" {
				w.Failf("Somebody changed Node node-1 right before the controller wrote to it. Ten minutes after the controller was started, the Node has no annotation first-seen.")
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

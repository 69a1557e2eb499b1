//go:build exercise

package sharedobject

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
		check.Scene{Name: "the API server refuses one update", Play: func(w *check.World) {
			w.Inject("verb=update,resource=nodes,nth=1,refuse=500", "verb=patch,resource=nodes,nth=1,refuse=500")
			start(w)
			// client-go's detector of modified caches, which is on, looks once a second. What follows from the bug shows before.
			w.Advance(500 * time.Millisecond)
			expect(w, "The API server refused to update Node r7-node3 once. The controller tried again at once, found nothing to do, and does not try again: ")
			w.Advance(time.Hour)
			expect(w, "The API server refused to update Node r7-node3 once. An hour later: ")
		}},
		check.Scene{Name: "a Node is annotated", Play: func(w *check.World) {
			start(w)
			w.Advance(time.Hour)
			expect(w, "")
		}},
		check.Scene{Name: "an update takes five seconds", Play: func(w *check.World) {
			w.Inject("verb=update,resource=nodes,nth=1,delay=5s", "verb=patch,resource=nodes,nth=1,delay=5s")
			start(w)
			w.Advance(time.Hour) // the detector looks while the request is on its way
			expect(w, "")
		}},
	)
}

func start(w *check.World) {
	w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r7-node3", Annotations: map[string]string{"owner": "ops"}}})
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client}).Run(ctx)
	})
}

func expect(w *check.World, why string) {
	node := check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), "r7-node3", metav1.GetOptions{}))
	switch got, ok := node.Annotations[Rack]; {
	case !ok:
		w.Failf("%sNode r7-node3 has no annotation with its rack.", why)
	case got != "r7":
		w.Failf("%sNode r7-node3 is in rack r7, and its annotation says %q.", why, got)
	case node.Annotations["owner"] != "ops":
		w.Failf("%sNode r7-node3 has lost its annotation owner.", why)
	}
}

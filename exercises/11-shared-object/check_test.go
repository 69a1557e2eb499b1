//go:build exercise

package sharedobject

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
	"example.com/controllers/harness/history"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "the API server refuses one update", Play: func(w *check.World) {
			w.Inject("verb=update,resource=nodes,nth=1,refuse=500", "verb=patch,resource=nodes,nth=1,refuse=500")
			start(w)
			// client-go's detector of modified caches, which is on, looks once a second. What follows from the bug shows before.
			w.Advance(500 * time.Millisecond)
			tries := "did not try again"
			if len(w.Writes()) > 1 {
				tries = "tried again"
			}
			expect(w, "The API server refused to update Node r7-node3 once, and the controller %s: ", tries)
			w.Advance(time.Hour)
			expect(w, "The API server refused to update Node r7-node3 once. An hour later: ")
		}},
		check.Scene{Name: "a Node is annotated", Play: func(w *check.World) {
			start(w)
			w.Advance(time.Hour)
			expect(w, "")
			calls := func() int {
				return len(w.History().Where(func(r history.Request) bool { return r.Who != "user" && r.Verb != "list" && r.Verb != "watch" }).Requests)
			}
			before := calls()
			for minute := range 60 {
				node := get(w)
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: fmt.Sprint("heartbeat-", minute)}}
				check.Must(w.Client.CoreV1().Nodes().UpdateStatus(context.Background(), node, metav1.UpdateOptions{}))
				w.Advance(time.Minute)
			}
			if made := calls() - before; made > 30 {
				w.Failf("Node r7-node3 has the right annotation. For an hour, its kubelet reported its status once a minute, and the controller made %d requests. A cluster has hundreds of Nodes.", made)
			}
		}},
		check.Scene{Name: "the annotation is wrong", Play: func(w *check.World) {
			w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r7-node3", Annotations: map[string]string{"owner": "ops", Rack: "r6"}}})
			run(w)
			w.Advance(time.Minute)
			expect(w, "A minute after the controller was started: ")
			node := get(w)
			node.Annotations[Rack] = "r8"
			check.Must(w.Client.CoreV1().Nodes().Update(context.Background(), node, metav1.UpdateOptions{}))
			w.Advance(time.Minute)
			expect(w, "Somebody changed the annotation of Node r7-node3. A minute later: ")
		}},
		check.Scene{Name: "the API server refuses updates for ten minutes", Play: func(w *check.World) {
			w.Inject("verb=update,resource=nodes,refuse=500", "verb=patch,resource=nodes,refuse=500")
			start(w)
			w.Advance(10 * time.Minute)
			if writes := len(w.Writes()); writes > 1500 {
				w.Failf("The API server refused all updates for ten minutes. The controller sent %d for one Node.", writes)
			}
			w.Heal()
			w.Advance(30 * time.Minute) // more than the backoff of the last failure
			expect(w, "The API server refused all updates for ten minutes. Half an hour later: ")
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
	run(w)
}

func run(w *check.World) {
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client}).Run(ctx)
	})
}

func get(w *check.World) *corev1.Node {
	return check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), "r7-node3", metav1.GetOptions{}))
}

func expect(w *check.World, format string, args ...any) {
	node, why := get(w), fmt.Sprintf(format, args...)
	switch got, ok := node.Annotations[Rack]; {
	case !ok:
		w.Failf("%sNode r7-node3 has no annotation with its rack.", why)
	case got != "r7":
		w.Failf("%sNode r7-node3 is in rack r7, and its annotation says %q.", why, got)
	case node.Annotations["owner"] != "ops":
		w.Failf("%sNode r7-node3 has lost its annotation owner.", why)
	}
}

//go:build exercise

package nofreeslot

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
		check.Scene{Name: "three Nodes reboot, one after the other", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed), node("node-2", corev1.ConditionTrue, Needed), node("node-3", corev1.ConditionTrue, Needed))
			start(w)
			for range 3 {
				w.Eventually(5*time.Minute, func() bool { return len(admitted(w)) > 0 }, "No Node is being rebooted, and there are Nodes that need it. None of them has been admitted for five minutes.")
				if got := admitted(w); len(got) > 1 {
					w.Failf("At most one Node may be unavailable, and the controller admitted %v.", got)
				}
				reboot(w, admitted(w)[0], 5*time.Minute)
			}
		}},
		check.Scene{Name: "the API server fails for a while", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed))
			w.Inject("verb=update,resource=nodes,refuse=500", "verb=patch,resource=nodes,refuse=500")
			start(w)
			w.Advance(15 * time.Minute)
			w.Heal()
			w.Advance(time.Hour)
			if len(admitted(w)) == 0 {
				w.Failf("The API server refused all changes of Nodes for a quarter of an hour. An hour later, node-1 has not been admitted.")
			}
		}},
		check.Scene{Name: "a reboot takes an hour", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed), node("node-2", corev1.ConditionTrue, Needed))
			start(w)
			w.Eventually(5*time.Minute, func() bool { return len(admitted(w)) > 0 }, "Two Nodes need a reboot. None of them has been admitted for five minutes.")
			reboot(w, admitted(w)[0], time.Hour)
			w.Eventually(5*time.Minute, func() bool { return len(admitted(w)) > 0 }, "A Node had to wait while another one rebooted, which took an hour. Five minutes after that, it has not been admitted.")
		}},
	)
}

// node returns a Node with these annotations, besides one that has nothing to do with reboots.
func node(name string, ready corev1.ConditionStatus, annotations ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"owner": "ops"}}}
	for _, annotation := range annotations {
		n.Annotations[annotation] = ""
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func start(w *check.World) {
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, MaxUnavailable: 1}).Run(ctx)
	})
}

// admitted returns the names of the Nodes with the annotation reboot-now or reboot-in-progress.
func admitted(w *check.World) []string {
	var names []string
	for _, n := range check.Must(w.Client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})).Items {
		_, now := n.Annotations[Now]
		_, inProgress := n.Annotations[InProgress]
		if now || inProgress {
			names = append(names, n.Name)
		}
	}
	return names
}

// reboot does what the agent of an admitted Node does.
func reboot(w *check.World, name string, takes time.Duration) {
	w.Say("the agent of %s reboots the machine", name)
	w.Given(node(name, corev1.ConditionTrue, InProgress))
	w.Advance(takes)
	w.Given(node(name, corev1.ConditionTrue))
	w.Settle()
}

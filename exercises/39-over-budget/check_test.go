//go:build exercise

package overbudget

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
		check.Scene{Name: "the watch of Nodes is late", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue), node("node-2", corev1.ConditionTrue))
			start(w)
			w.Advance(time.Second)
			w.Inject("verb=watch,resource=nodes,late=5m")
			w.Server.CutWatches("nodes") // so that the next one is late, and not the Nodes at the start
			w.Advance(time.Minute)
			w.Say("the administrator asks for a reboot of node-1 and, a second later, of node-2")
			w.Given(node("node-1", corev1.ConditionTrue, Needed))
			w.Advance(time.Second)
			w.Given(node("node-2", corev1.ConditionTrue, Needed))
			w.Advance(15 * time.Minute)
			if len(admitted(w)) > 1 {
				w.Failf("At most one Node may be unavailable. The watch of Nodes was five minutes late, and the controller admitted both node-1 and node-2.")
			}
		}},
		check.Scene{Name: "a Node reboots while the watch of Nodes is broken", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue), node("node-2", corev1.ConditionTrue))
			start(w)
			for _, name := range []string{"node-1", "node-2", "node-1"} {
				w.Inject("verb=watch,resource=nodes,late=10s")
				w.Server.CutWatches("nodes")
				w.Advance(time.Minute)
				w.Given(node(name, corev1.ConditionTrue, Needed))
				w.Eventually(5*time.Minute, func() bool { return len(admitted(w)) > 0 }, "Node %s needs a reboot, and no other Node is being rebooted. It has not been admitted for five minutes.", name)
				w.BreakWatches("nodes", func() { reboot(w, name) })
				w.Heal()
				w.Advance(time.Minute)
			}
		}},
		check.Scene{Name: "three Nodes reboot, one after the other", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed), node("node-2", corev1.ConditionTrue, Needed), node("node-3", corev1.ConditionTrue, Needed))
			start(w)
			for range 3 {
				w.Eventually(5*time.Minute, func() bool { return len(admitted(w)) > 0 }, "No Node is being rebooted, and there are Nodes that need it. None of them has been admitted for five minutes.")
				if got := admitted(w); len(got) > 1 {
					w.Failf("At most one Node may be unavailable, and the controller admitted %v.", got)
				}
				reboot(w, admitted(w)[0])
			}
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
func reboot(w *check.World, name string) {
	w.Say("the agent of %s reboots the machine", name)
	w.Given(node(name, corev1.ConditionTrue, InProgress))
	w.Advance(5 * time.Minute)
	w.Given(node(name, corev1.ConditionTrue))
	w.Settle()
}

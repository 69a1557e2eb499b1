//go:build exercise

package blocksitself

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
				reboot(w, admitted(w)[0])
			}
		}},
		check.Scene{Name: "a Node that is not ready needs a reboot", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionFalse, Needed), node("node-2", corev1.ConditionTrue))
			start(w)
			w.Eventually(2*time.Minute, func() bool { return len(admitted(w)) > 0 }, "Node node-1 is not ready and needs a reboot; all others are ready. Two minutes later, it has not been admitted.")
		}},
		check.Scene{Name: "another Node is not ready", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionFalse), node("node-2", corev1.ConditionTrue, Needed))
			start(w)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most one Node may be unavailable. Node node-1 is not ready, and the controller admitted node-2.")
		}},
		check.Scene{Name: "a Node that is not ready needs a reboot while another one reboots", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionFalse, Needed), node("node-2", corev1.ConditionTrue, InProgress))
			start(w)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 1 }, "At most one Node may be unavailable. Node node-2 is being rebooted, and the controller admitted node-1, too.")
		}},
		check.Scene{Name: "a Node that is not ready cannot be admitted", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionFalse, Needed), node("node-2", corev1.ConditionTrue, Needed))
			w.Inject("verb=update,resource=nodes,name=node-1,refuse=500", "verb=patch,resource=nodes,name=node-1,refuse=500")
			start(w)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most one Node may be unavailable. Node node-1 is not ready and has not been admitted, and the controller admitted node-2.")
		}},
		check.Scene{Name: "three Nodes that are not ready need a reboot", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionFalse, Needed), node("node-2", corev1.ConditionFalse, Needed), node("node-3", corev1.ConditionFalse, Needed), node("node-4", corev1.ConditionTrue))
			start(w)
			for range 3 {
				w.Eventually(2*time.Minute, func() bool { return len(admitted(w)) > 0 }, "Several Nodes are not ready, all of them need a reboot, and none is being rebooted. Two minutes later, none of them has been admitted.")
				w.Advance(time.Minute)
				if got := admitted(w); len(got) > 1 {
					w.Failf("At most one Node may be rebooted at a time, and the controller admitted %v, which are not ready.", got)
				}
				reboot(w, admitted(w)[0])
			}
		}},
		check.Scene{Name: "three Nodes may be unavailable", Play: func(w *check.World) {
			w.Given(
				node("node-1", corev1.ConditionTrue, Needed), node("node-2", corev1.ConditionTrue, Needed),
				node("node-3", corev1.ConditionFalse), node("node-4", corev1.ConditionFalse),
			)
			startWith(w, 3)
			w.Eventually(2*time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most three Nodes may be unavailable, and two are not ready. Two minutes later, none of those that need a reboot has been admitted.")
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 1 }, "At most three Nodes may be unavailable. Two are not ready, and the controller admitted both of the others.")
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

func start(w *check.World) { startWith(w, 1) }

func startWith(w *check.World, maxUnavailable int) {
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, MaxUnavailable: maxUnavailable}).Run(ctx)
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

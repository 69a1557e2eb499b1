//go:build exercise

package unknownnode

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
		check.Scene{Name: "a Node is not ready", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed), node("node-2", corev1.ConditionFalse))
			start(w)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most one Node may be unavailable. Node node-2 is not ready, and the controller admitted node-1 as well.")
		}},
		check.Scene{Name: "the readiness of a Node is unknown", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed), node("node-2", corev1.ConditionUnknown))
			start(w)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most one Node may be unavailable. The kubelet of node-2 has stopped reporting, so its Ready condition is Unknown, and the controller admitted node-1 as well.")
			w.Advance(time.Hour)
			w.Given(node("node-2", corev1.ConditionTrue))
			w.Eventually(2*time.Minute, func() bool { return len(admitted(w)) > 0 }, "All Nodes are ready again, after an hour. Two minutes later, node-1 has not been admitted.")
		}},
		check.Scene{Name: "a Node was created before its kubelet was started", Play: func(w *check.World) {
			fresh := node("node-2", corev1.ConditionUnknown)
			fresh.Status.Conditions = nil
			w.Given(node("node-1", corev1.ConditionTrue, Needed), fresh)
			start(w)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most one Node may be unavailable. A script created Node node-2 before its kubelet was started, so it has no Ready condition yet, and the controller admitted node-1 as well.")
			fresh.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse}}
			w.Given(fresh)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most one Node may be unavailable. Node node-2 was created before its kubelet was started: the network plugin has set its condition NetworkUnavailable, and it has no Ready condition yet. The controller admitted node-1 as well.")
		}},
		check.Scene{Name: "three Nodes may be unavailable", Play: func(w *check.World) {
			w.Given(
				node("node-1", corev1.ConditionTrue, Needed), node("node-2", corev1.ConditionTrue, Needed),
				node("node-3", corev1.ConditionUnknown), node("node-4", corev1.ConditionFalse),
			)
			startWith(w, 3)
			w.Eventually(2*time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most three Nodes may be unavailable, and two are not ready. Two minutes later, none of those that need a reboot has been admitted.")
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 1 }, "At most three Nodes may be unavailable. Two are not ready, and the controller admitted both of the others.")
		}},
		check.Scene{Name: "a Node whose readiness is unknown needs a reboot", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionUnknown, Needed), node("node-2", corev1.ConditionTrue))
			start(w)
			w.Eventually(2*time.Minute, func() bool { return len(admitted(w)) > 0 }, "The kubelet of node-1 has stopped reporting, and the Node needs a reboot; all others are ready. Two minutes later, it has not been admitted.")
		}},
		check.Scene{Name: "a Node that is not ready needs a reboot while another one reboots", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionFalse, Needed), node("node-2", corev1.ConditionTrue, InProgress))
			start(w)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 1 }, "At most one Node may be unavailable. Node node-2 is being rebooted, and the controller admitted node-1, too.")
		}},
		check.Scene{Name: "two Nodes that are not ready need a reboot", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionUnknown, Needed), node("node-2", corev1.ConditionUnknown, Needed), node("node-3", corev1.ConditionTrue))
			start(w)
			w.Eventually(2*time.Minute, func() bool { return len(admitted(w)) > 0 }, "The kubelets of node-1 and node-2 have stopped reporting, and both Nodes need a reboot. Each waits for the other: two minutes later, neither has been admitted.")
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 1 }, "At most one Node may be unavailable, and the controller admitted both node-1 and node-2.")
		}},
		check.Scene{Name: "a Node has a taint", Play: func(w *check.World) {
			tainted := node("node-2", corev1.ConditionTrue)
			tainted.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "database", Effect: corev1.TaintEffectNoSchedule}}
			w.Given(node("node-1", corev1.ConditionTrue, Needed), tainted)
			start(w)
			w.Eventually(2*time.Minute, func() bool { return len(admitted(w)) > 0 }, "All Nodes are ready. Node node-2 has a taint, since it is for databases only. Two minutes later, node-1 has not been admitted.")
		}},
		check.Scene{Name: "a Node that is cordoned needs a reboot while another one is not ready", Play: func(w *check.World) {
			cordoned := node("node-1", corev1.ConditionTrue, Needed)
			cordoned.Spec.Unschedulable = true
			w.Given(cordoned, node("node-2", corev1.ConditionFalse))
			start(w)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most one Node may be unavailable. Node node-2 is not ready. Node node-1 is cordoned, but its Pods still run, and the controller admitted it as well.")
		}},
		check.Scene{Name: "a Node that is not ready cannot be admitted", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionFalse, Needed), node("node-2", corev1.ConditionTrue, Needed))
			w.Inject("verb=update,resource=nodes,name=node-1,refuse=500", "verb=patch,resource=nodes,name=node-1,refuse=500")
			start(w)
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 0 }, "At most one Node may be unavailable. Node node-1 is not ready and has not been admitted, and the controller admitted node-2.")
		}},
	)
}

// node returns a Node with these annotations, besides one that has nothing to do with reboots.
func node(name string, ready corev1.ConditionStatus, annotations ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"owner": "ops"}}}
	for _, annotation := range annotations {
		n.Annotations[annotation] = ""
	}
	full := corev1.ConditionFalse
	switch ready {
	case corev1.ConditionFalse:
		full = corev1.ConditionTrue // why it is not ready
	case corev1.ConditionUnknown:
		full = corev1.ConditionUnknown
	}
	now := time.Now()
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse},
		// The last report of the kubelet is 50 seconds old when the condition becomes Unknown.
		{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(now), LastHeartbeatTime: metav1.NewTime(now.Add(-50 * time.Second))},
		{Type: corev1.NodeDiskPressure, Status: full},
	}
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

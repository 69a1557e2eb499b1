//go:build exercise

package nofreeslot

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		check.Scene{Name: "slots get free in other ways", Play: func(w *check.World) {
			start(w)
			for _, slot := range []struct {
				holder *corev1.Node
				free   func()
				why    string
			}{
				{node("node-7", corev1.ConditionTrue, InProgress), func() { w.Delete("nodes", "", "node-7") }, "Node node-7 was removed while it was being rebooted. "},
				{node("node-8", corev1.ConditionFalse), func() { w.Given(node("node-8", corev1.ConditionTrue)) }, "Node node-8 was not ready, and is ready again. "},
				{node("node-9", corev1.ConditionTrue, Now), func() { w.Given(node("node-9", corev1.ConditionTrue)) }, "Somebody took back the admission of node-9. "},
			} {
				w.Given(slot.holder)
				w.Advance(time.Minute)
				w.Given(node("node-1", corev1.ConditionTrue, Needed))
				w.Advance(time.Minute)
				w.Say("the slot gets free")
				slot.free()
				w.Eventually(5*time.Minute, func() bool { return slices.Contains(admitted(w), "node-1") }, "%sFive minutes later, node-1, which waits for a slot, has not been admitted.", slot.why)
				reboot(w, "node-1", time.Minute)
			}
		}},
		check.Scene{Name: "a Node that is not ready is to be rebooted", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed), node("node-9", corev1.ConditionFalse))
			start(w)
			w.Advance(time.Minute)
			w.Given(node("node-9", corev1.ConditionFalse, Needed))
			w.Eventually(5*time.Minute, func() bool { return len(admitted(w)) > 0 }, "Node node-1 waits, because node-9 is not ready. Node node-9 needs a reboot as well, makes no other Node unavailable, and has not been admitted for five minutes.")
			if got := admitted(w); !slices.Equal(got, []string{"node-9"}) {
				w.Failf("Node node-9 is not ready, and at most one Node may be unavailable. The controller admitted %v.", got)
			}
		}},
		check.Scene{Name: "a Node waits, and changes all the time", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed), node("node-9", corev1.ConditionTrue, InProgress))
			start(w)
			for i := range 200 {
				change := fmt.Appendf(nil, `{"metadata":{"labels":{"changed":"%d"}}}`, i)
				check.Must(w.Client.CoreV1().Nodes().Patch(context.Background(), "node-1", types.MergePatchType, change, metav1.PatchOptions{}))
				w.Advance(7300 * time.Millisecond)
			}
			if requests := len(w.Requests(check.ControllerName).Requests); requests > 3500 {
				w.Failf("Node node-1 waited for a slot for 24 minutes, and changed every seven seconds. The controller made %d requests.", requests)
			}
			if errors := w.Errors(); errors > 10 {
				w.Failf("Node node-1 waited for a slot for 24 minutes. Nothing failed, and the controller logged %d errors.", errors)
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
func reboot(w *check.World, name string, takes time.Duration) {
	w.Say("the agent of %s reboots the machine", name)
	w.Given(node(name, corev1.ConditionTrue, InProgress))
	w.Advance(takes)
	w.Given(node(name, corev1.ConditionTrue))
	w.Settle()
}

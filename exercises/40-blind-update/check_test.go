//go:build exercise

package blindupdate

import (
	"context"
	"slices"
	"strings"
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
		check.Scene{Name: "somebody cordons the Node meanwhile", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed))
			w.Inject("verb=update,resource=nodes,nth=1,delay=5s", "verb=patch,resource=nodes,nth=1,delay=5s", "verb=get,resource=nodes,nth=1,delay=5s")
			start(w)
			w.Advance(2 * time.Second)
			n := check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{}))
			n.Spec.Unschedulable = true
			n.Annotations["ticket"] = "4711"
			n.Labels = map[string]string{"rack": "7"}
			n.Finalizers = []string{"example.com/storage"}
			check.Must(w.Client.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}))
			w.Advance(time.Minute)
			n = check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{}))
			var lost []string
			if !n.Spec.Unschedulable {
				lost = append(lost, "the cordon")
			}
			if n.Annotations["ticket"] != "4711" {
				lost = append(lost, "the annotation ticket")
			}
			if n.Labels["rack"] != "7" {
				lost = append(lost, "the label rack")
			}
			if !slices.Contains(n.Finalizers, "example.com/storage") {
				lost = append(lost, "the finalizer")
			}
			if len(lost) > 0 {
				w.Failf("A user cordoned node-1, and gave it an annotation, a label and a finalizer, while the controller was about to admit it. After the controller's write, there is no trace of %s.", strings.Join(lost, ", "))
			}
			if len(admitted(w)) == 0 {
				w.Failf("A user changed node-1 while the controller was about to admit it. A minute later, it has not been admitted.")
			}
		}},
		check.Scene{Name: "the request is withdrawn meanwhile", Play: func(w *check.World) {
			w.Inject("verb=get,resource=nodes,nth=1,delay=5s")
			withdraw(w)
		}},
		check.Scene{Name: "the request is withdrawn while the write is on its way", Play: func(w *check.World) {
			withdraw(w)
		}},
		check.Scene{Name: "the Node changes, and another one goes down, while the write is on its way", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed), node("node-2", corev1.ConditionTrue))
			w.Inject("verb=update,resource=nodes,nth=1,delay=5s", "verb=patch,resource=nodes,nth=1,delay=5s")
			start(w)
			w.Advance(2 * time.Second)
			n := check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{}))
			n.Annotations["ticket"] = "4711"
			check.Must(w.Client.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}))
			w.Given(node("node-2", corev1.ConditionFalse))
			down := time.Now()
			again := func(r history.Request) bool { return r.Start.After(down) && r.Status == 200 }
			w.Never(time.Minute, func() bool { return len(admitted(w)) > 0 && slices.ContainsFunc(w.Writes(), again) },
				"At most one Node may be unavailable. While the controller's write to node-1 was on its way, a user annotated node-1, and node-2 became not ready. Then the controller made another write, and admitted node-1 all the same.")
			if len(admitted(w)) > 0 {
				return // by the first write, which depended on what it changes: it was on its way before node-2 went down
			}
			w.Given(node("node-2", corev1.ConditionTrue))
			w.Eventually(2*time.Minute, func() bool { return len(admitted(w)) > 0 }, "Node node-2 is ready again, and node-1 needs a reboot. Two minutes later, it has not been admitted.")
		}},
		check.Scene{Name: "the API server refuses to write for a while", Play: func(w *check.World) {
			w.Given(node("node-1", corev1.ConditionTrue, Needed))
			w.Inject("verb=update,resource=nodes,refuse=500", "verb=patch,resource=nodes,refuse=500")
			start(w)
			w.Advance(2 * time.Minute)
			w.Heal()
			w.Say("the API server writes again")
			w.Advance(time.Hour)
			if len(admitted(w)) == 0 {
				w.Failf("The API server refused all writes to node-1 for two minutes. An hour later, node-1 has not been admitted.")
			}
		}},
	)
}

// withdraw delays the first write, and fails the check if the controller admits a Node whose request is withdrawn meanwhile.
func withdraw(w *check.World) {
	w.Given(node("node-1", corev1.ConditionTrue, Needed))
	w.Inject("verb=update,resource=nodes,nth=1,delay=5s", "verb=patch,resource=nodes,nth=1,delay=5s")
	start(w)
	w.Advance(2 * time.Second)
	n := check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{}))
	delete(n.Annotations, Needed)
	check.Must(w.Client.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}))
	w.Advance(time.Minute)
	if len(admitted(w)) > 0 {
		w.Failf("The administrator withdrew the request for a reboot of node-1 while the controller was about to admit it. The controller admitted it all the same.")
	}
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

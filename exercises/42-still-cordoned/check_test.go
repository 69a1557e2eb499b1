//go:build exercise

package stillcordoned

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a Node reboots, twice", Play: func(w *check.World) {
			m := begin(w, false, true)
			m.expectReboots(1, "The reboot of node-1 was asked for. ")
			expect(w, false, "Node node-1 was cordoned by its agent, and its machine has been rebooted. ")
			m.ask()
			m.expectReboots(2, "Node node-1 has rebooted once, and was asked for a second time to reboot. ")
			expect(w, false, "Node node-1 was cordoned by its agent for a second reboot, and its machine has been rebooted. ")
		}},
		check.Scene{Name: "somebody has cordoned the Node, and nobody asks for a reboot", Play: func(w *check.World) {
			begin(w, true, false)
			expect(w, true, "Somebody cordoned node-1 before its agent was started, and nobody asked for a reboot. ")
			if writes := w.Writes(); len(writes) > 0 {
				w.Failf("Somebody cordoned node-1, and nobody asked for a reboot. The agent wrote to the Node %d times in ten minutes.", len(writes))
			}
		}},
		check.Scene{Name: "somebody has cordoned the Node before its reboot", Play: func(w *check.World) {
			m := begin(w, true, true)
			m.expectReboots(1, "Node node-1 was cordoned, and its reboot was asked for. ")
			expect(w, true, "Somebody cordoned node-1 before its reboot. ")
			m.ask()
			m.expectReboots(2, "Node node-1 was still cordoned, and its reboot was asked for a second time. ")
			expect(w, true, "Somebody cordoned node-1 before its reboots, of which this was the second one. ")
		}},
		check.Scene{Name: "the request is withdrawn after the agent has cordoned the Node", Play: func(w *check.World) {
			cordoned := node(true, false)
			cordoned.Annotations[Cordoned] = "2026-01-01T00:00:00Z"
			start(w, cordoned, newMachine(w))
			expect(w, false, "The agent of node-1 had cordoned it for a reboot. The request was withdrawn before the reboot, while the agent was down. ")
		}},
		check.Scene{Name: "somebody has uncordoned the Node, and cordons it later", Play: func(w *check.World) {
			uncordoned := node(false, false)
			uncordoned.Annotations[Cordoned] = "2026-01-01T00:00:00Z"
			start(w, uncordoned, newMachine(w))
			uncordoned = get(w)
			uncordoned.Spec.Unschedulable = true
			check.Must(w.Client.CoreV1().Nodes().Update(w.T.Context(), uncordoned, metav1.UpdateOptions{}))
			w.Advance(10 * time.Minute)
			expect(w, true, "The agent of node-1 had cordoned it, and somebody uncordoned it while the agent was down. Ten minutes later, somebody cordoned it again. ")
		}},
		check.Scene{Name: "the agent is restarted by the reboot", Play: func(w *check.World) {
			m := rebooted(w)
			m.start()
			expect(w, false, "The agent of node-1 cordoned it three hours ago and rebooted the machine, and was started again by the reboot. ")
		}},
		check.Scene{Name: "the agent is killed after its first write since the reboot", Play: func(w *check.World) {
			for _, verb := range []string{"update", "patch"} {
				fault := apiproxy.Fault{Effect: apiproxy.Effect{Kill: apiproxy.After}}
				fault.Verb, fault.Resource, fault.From, fault.To = verb, "nodes", 1, 1
				w.InjectFault(fault)
			}
			m := rebooted(w)
			m.start()
			w.Heal()
			n := get(w)
			if n.Spec.Unschedulable {
				m.start()
				expect(w, false, "The agent of node-1 was killed after its first write since the reboot, and started again. ")
				return
			}
			n.Spec.Unschedulable = true
			check.Must(w.Client.CoreV1().Nodes().Update(w.T.Context(), n, metav1.UpdateOptions{}))
			m.start()
			expect(w, true, "The agent of node-1 was killed after its first write since the reboot. The Node was schedulable then, and somebody cordoned it. The agent was started again. ")
		}},
		check.Scene{Name: "the next reboot is asked for while the agent finishes the last one", Play: func(w *check.World) {
			m := rebooted(w)
			var once sync.Once
			for _, verb := range []string{"update", "patch"} {
				w.Before(verb, "nodes", func() {
					once.Do(func() {
						n := get(w)
						n.Annotations[Now] = m.BootID()
						check.Must(w.Client.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}))
					})
				})
			}
			m.start()
			m.expectReboots(2, "Node node-1 had rebooted once. While its agent's next write was on its way, a second reboot was asked for. ")
			expect(w, false, "Node node-1 was asked for a second reboot while its agent finished the first one, and has rebooted twice. ")
		}},
	)
}

type machine struct {
	w        *check.World
	boots    atomic.Int32 // since the machine was installed
	cordoned bool         // whether the Node was cordoned when the machine went down
}

func newMachine(w *check.World) *machine {
	m := &machine{w: w}
	m.boots.Add(1)
	return m
}

func begin(w *check.World, cordoned, now bool) *machine {
	m := newMachine(w)
	start(w, node(cordoned, now), m)
	return m
}

func node(cordoned, now bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{"owner": "ops"}}}
	n.Spec.Unschedulable = cordoned
	if now {
		n.Annotations[Now] = "boot-1"
	}
	return n
}

// rebooted returns a machine that has been rebooted, and whose Node is still cordoned. Its agent does not run.
func rebooted(w *check.World) *machine {
	n := node(true, true)
	n.Annotations[Cordoned] = time.Now().Add(-3 * time.Hour).UTC().Format(time.RFC3339)
	w.Given(n)
	m := newMachine(w)
	m.boots.Add(1)
	return m
}

func start(w *check.World, n *corev1.Node, m *machine) {
	w.Given(n)
	m.start()
}

// start starts the agent, and lets time pass.
func (m *machine) start() {
	m.w.StartNamed("agent", func(ctx context.Context, config *rest.Config) error {
		return (&Agent{Client: kubernetes.NewForConfigOrDie(config), NodeName: "node-1", Machine: m, Interval: 10 * time.Second}).Run(ctx)
	})
	m.w.Advance(10 * time.Minute)
}

// ask asks for another reboot, and lets time pass.
func (m *machine) ask() {
	n := get(m.w)
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, Now, m.BootID())
	check.Must(m.w.Client.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}))
	m.w.Advance(10 * time.Minute)
}

// expectReboots fails the check if the machine has not been rebooted that many times, or the Node was not cordoned then.
func (m *machine) expectReboots(want int32, why string) {
	switch got := m.boots.Load() - 1; {
	case got < want:
		m.w.Failf("%sTen minutes later, the machine has not been rebooted.", why)
	case got > want:
		m.w.Failf("%sTen minutes later, the machine has been rebooted %d times in all; it should be %d.", why, got, want)
	case !m.cordoned:
		m.w.Failf("The machine of node-1 went down, and the Node was not cordoned.")
	}
}

// BootID implements Machine.
func (m *machine) BootID() string { return fmt.Sprint("boot-", m.boots.Load()) }

// Reboot implements Machine.
func (m *machine) Reboot(ctx context.Context) error {
	m.cordoned = get(m.w).Spec.Unschedulable
	m.w.Say("the machine goes down")
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
		return ctx.Err()
	}
	m.w.Say("the machine is back")
	m.boots.Add(1)
	return nil
}

func get(w *check.World) *corev1.Node {
	return check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{}))
}

func expect(w *check.World, cordoned bool, why string) {
	node := get(w)
	_, now := node.Annotations[Now]
	_, ours := node.Annotations[Cordoned]
	switch {
	case cordoned && !node.Spec.Unschedulable:
		w.Failf("%sThe agent uncordoned it.", why)
	case !cordoned && node.Spec.Unschedulable:
		w.Failf("%sThe Node is still cordoned.", why)
	case now || ours:
		w.Failf("%sIt still has an annotation that the agent should have removed.", why)
	}
}

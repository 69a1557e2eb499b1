//go:build exercise

package ignoresadd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a reboot is requested while the agent runs", Play: func(w *check.World) {
			w.Given(node("node-1", false), node("node-2", false))
			machine := start(w)
			request(w, "node-1")
			w.Advance(time.Minute)
			if machine.reboots != 1 {
				w.Failf("A reboot of node-1 was requested. A minute later, the machine has rebooted %d times instead of once.", machine.reboots)
			}
		}},
		check.Scene{Name: "a reboot is requested before the agent starts", Play: func(w *check.World) {
			w.Given(node("node-1", true), node("node-2", true))
			machine := start(w)
			w.Advance(time.Minute)
			if machine.reboots != 1 {
				w.Failf("A reboot of node-1 was requested before its agent was started. A minute after the start, the machine has rebooted %d times instead of once.", machine.reboots)
			}
			if machine.last > soon {
				w.Failf("A reboot of node-1 was requested before its agent was started. The machine rebooted as late as %s after the start.", machine.last)
			}
		}},
		check.Scene{Name: "nobody requests a reboot", Play: func(w *check.World) {
			w.Given(node("node-1", false), node("node-2", true))
			machine := start(w)
			w.Advance(24 * time.Hour)
			if machine.reboots != 0 {
				w.Failf("Nobody has requested a reboot of node-1, and its agent has rebooted it.")
			}
			if requests := len(w.Requests("agent").Requests); requests > 3000 {
				w.Failf("Nobody has requested a reboot of node-1 for a day, and its agent made %d requests. There is an agent on each Node of the cluster.", requests)
			}
		}},
		check.Scene{Name: "a reboot is requested while the agent starts", Play: func(w *check.World) {
			w.Given(node("node-1", false))
			w.Inject("verb=list,resource=nodes,delay=10s", "verb=watch,resource=nodes,delay=10s")
			machine := start(w)
			request(w, "node-1")
			w.Advance(time.Minute)
			if machine.reboots != 1 {
				w.Failf("A reboot of node-1 was requested while its agent was starting, before the API server had answered its list. A minute later, the machine has rebooted %d times instead of once.", machine.reboots)
			}
		}},
		check.Scene{Name: "the machine comes back", Play: func(w *check.World) {
			w.Given(node("node-1", true))
			machine := &machine{reboot: func(ctx context.Context) error {
				<-ctx.Done() // until the machine takes the agent down
				return nil
			}}
			agent := machine.boot(w)
			w.Advance(time.Minute)
			agent.Kill()
			machine.reboot = nil
			machine.boot(w)
			w.Advance(time.Minute)
			if machine.reboots != 1 {
				w.Failf("A reboot of node-1 was requested once, and the machine went down and came back. A minute after its agent was started again, the machine has rebooted %d times instead of once.", machine.reboots)
			}
		}},
		check.Scene{Name: "another reboot is requested after one that failed", Play: func(w *check.World) {
			w.Given(node("node-1", true))
			failing := true
			machine := &machine{reboot: func(context.Context) error {
				if failing {
					return errors.New("the machine does not obey")
				}
				return nil
			}}
			machine.boot(w)
			w.Advance(time.Hour)
			failing = false
			before := machine.reboots
			request(w, "node-1")
			w.Advance(time.Minute)
			if machine.reboots == before {
				w.Failf("A reboot of node-1 was requested, and failed. An hour later, it was requested again. Another minute later, the agent has not tried again.")
			}
		}},
		check.Scene{Name: "the annotation cannot be removed", Play: func(w *check.World) {
			w.Given(node("node-1", true))
			w.Inject("verb=update,resource=nodes,refuse=403", "verb=patch,resource=nodes,refuse=403")
			machine := start(w)
			w.Advance(10 * time.Minute)
			if machine.reboots != 0 {
				w.Failf("The API server refused to change node-1, and the agent has rebooted the machine all the same. The annotation is still there, so the machine would reboot again after each start of its agent.")
			}
		}},
		check.Scene{Name: "the agent is stopped while the machine is told to reboot", Play: func(w *check.World) {
			w.Given(node("node-1", true))
			var rebooting atomic.Bool
			machine := &machine{reboot: func(context.Context) error {
				rebooting.Store(true)
				time.Sleep(10 * time.Second)
				rebooting.Store(false)
				return nil
			}}
			agent := machine.boot(w)
			w.Advance(4 * time.Second)
			agent.Stop()
			w.Settle()
			if rebooting.Load() {
				w.Failf("The agent was stopped while it was telling the machine to reboot, which takes ten seconds, and did not wait for that. Its process would have ended in the middle, with the annotation gone and without a reboot.")
			}
		}},
	)
}

// soon is less than the shortest resync period of an informer.
const soon = 500 * time.Millisecond

type machine struct {
	reboots int
	last    time.Duration                   // when the machine rebooted last
	reboot  func(ctx context.Context) error // what happens then; nil if nothing else does
}

func node(name string, reboot bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"owner": "ops"}}}
	if reboot {
		n.Annotations[RebootNow] = ""
	}
	return n
}

func request(w *check.World, name string) {
	n := check.Must(w.Client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{}))
	n.Annotations[RebootNow] = ""
	check.Must(w.Client.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}))
}

func start(w *check.World) *machine {
	m := &machine{}
	m.boot(w)
	return m
}

// boot starts the machine's agent.
func (m *machine) boot(w *check.World) *check.Process {
	reboot := m.reboot
	agent := w.StartNamed("agent", func(ctx context.Context, config *rest.Config) error {
		agent := &Agent{Client: kubernetes.NewForConfigOrDie(config), NodeName: "node-1", Reboot: func() error {
			w.Say("the machine of node-1 reboots")
			m.reboots++
			m.last = w.Since()
			if reboot == nil {
				return nil
			}
			return reboot(ctx)
		}}
		return agent.Run(ctx)
	})
	w.Advance(time.Second)
	return agent
}

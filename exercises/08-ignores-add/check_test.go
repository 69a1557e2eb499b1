//go:build exercise

package ignoresadd

import (
	"context"
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
				w.Failf("A reboot of node-1 was requested before its agent was started. The machine rebooted only %s after the start.", machine.last)
			}
		}},
		check.Scene{Name: "nobody requests a reboot", Play: func(w *check.World) {
			w.Given(node("node-1", false), node("node-2", true))
			machine := start(w)
			w.Advance(24 * time.Hour)
			if machine.reboots != 0 {
				w.Failf("Nobody has requested a reboot of node-1, and its agent has rebooted it.")
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
	)
}

// soon is less than the shortest resync period of an informer.
const soon = 500 * time.Millisecond

type machine struct {
	reboots int
	last    time.Duration // when the machine rebooted last
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
	w.StartNamed("agent", func(ctx context.Context, config *rest.Config) error {
		agent := &Agent{Client: kubernetes.NewForConfigOrDie(config), NodeName: "node-1", Reboot: func() error {
			w.Say("the machine of node-1 reboots")
			m.reboots++
			m.last = w.Since()
			return nil
		}}
		return agent.Run(ctx)
	})
	w.Advance(time.Second)
	return m
}

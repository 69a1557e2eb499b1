//go:build exercise

package refusedreboot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a machine reboots", Play: func(w *check.World) {
			m := begin(w, 0)
			m.run(10 * time.Minute)
			m.expect(1, "")
		}},
		check.Scene{Name: "the machine refuses to reboot at first", Play: func(w *check.World) {
			m := begin(w, 10*time.Minute)
			m.run(20 * time.Minute)
			m.expect(1, "The machine refused to reboot for ten minutes, because an update was running. ")
		}},
		check.Scene{Name: "the agent is killed before it can reboot the machine", Play: func(w *check.World) {
			killAfterWrite(w)
			m := begin(w, 0)
			m.run(10 * time.Minute)
			m.expect(1, "The agent was killed right after it had marked node-1 as rebooting, and was started again. ")
		}},
		check.Scene{Name: "the machine refuses to reboot for two hours", Play: func(w *check.World) {
			m := begin(w, 2*time.Hour)
			m.run(2*time.Hour + 20*time.Minute)
			m.expect(1, "The machine refused to reboot for two hours, because an update was running. ")
		}},
		check.Scene{Name: "the machine refuses to reboot, and its Node changes all the time", Play: func(w *check.World) {
			m := beginSlow(w, 10*time.Minute, 5*time.Second)
			for i := range 60 {
				change := fmt.Appendf(nil, `{"metadata":{"labels":{"changed":"%d"}}}`, i)
				check.Must(w.Client.CoreV1().Nodes().Patch(context.Background(), "node-1", types.MergePatchType, change, metav1.PatchOptions{}))
				m.run(10 * time.Second)
			}
			m.mu.Lock()
			most := m.most
			m.mu.Unlock()
			if most > 2 {
				w.Failf("The machine takes five seconds to answer, and refused to reboot for ten minutes. It was asked by %d calls at the same time.", most)
			}
			m.run(20 * time.Minute)
			m.expect(1, "The machine refused to reboot for ten minutes, because an update was running. ")
		}},
	)
}

// killAfterWrite kills the agent right after its first write to a Node.
func killAfterWrite(w *check.World) {
	for _, verb := range []string{"update", "patch"} {
		fault := apiproxy.Fault{Effect: apiproxy.Effect{Kill: apiproxy.After}}
		fault.Verb, fault.Resource, fault.From, fault.To = verb, "nodes", 1, 1
		w.InjectFault(fault)
	}
}

// machine is a machine with an agent. When it reboots, its agent is killed, and started again by the kubelet.
type machine struct {
	w     *check.World
	agent *check.Process
	busy  time.Duration // until when, since the beginning of the scene, the machine refuses to reboot

	answersIn time.Duration // how long a request to reboot takes

	mu    sync.Mutex
	boots int // since the machine was installed
	asked int // requests to reboot that have no answer yet
	most  int // how many of these there were at once
	down  bool
}

// begin starts the agent of a machine that refuses to reboot for so long.
func begin(w *check.World, busy time.Duration) *machine { return beginSlow(w, busy, 0) }

// beginSlow starts the agent of a machine that takes so long to answer, which must be known by then: the agent may be quick.
func beginSlow(w *check.World, busy, answersIn time.Duration) *machine {
	w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{Now: "", "owner": "ops"}}})
	m := &machine{w: w, boots: 1, busy: busy, answersIn: answersIn}
	m.start()
	return m
}

func (m *machine) start() {
	m.agent = m.w.StartNamed("agent", func(ctx context.Context, config *rest.Config) error {
		return (&Agent{Client: kubernetes.NewForConfigOrDie(config), NodeName: "node-1", Machine: connection{m, ctx}}).Run(ctx)
	})
}

// connection is a machine as one of its agents sees it. Once the agent has been killed, it cannot reboot the machine.
type connection struct {
	*machine
	alive context.Context
}

// Reboot implements Machine.
func (c connection) Reboot(ctx context.Context) error {
	if err := c.alive.Err(); err != nil {
		return err
	}
	return c.machine.Reboot(ctx)
}

// BootID implements Machine.
func (m *machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint("boot-", m.boots)
}

// Reboot reboots the machine for an agent that is alive.
func (m *machine) Reboot(ctx context.Context) error {
	m.mu.Lock()
	m.asked++
	m.most = max(m.most, m.asked)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asked--
	}()
	select {
	case <-time.After(m.answersIn):
	case <-ctx.Done():
		return ctx.Err()
	}
	if m.w.Since() < m.busy {
		m.w.Say("the machine refuses to reboot")
		return errors.New("logind: the operation is inhibited")
	}
	m.mu.Lock()
	m.down = true
	m.mu.Unlock()
	m.w.Say("the machine goes down")
	<-ctx.Done()
	return ctx.Err()
}

// run lets time pass, and restarts the machine and the agent as needed.
func (m *machine) run(d time.Duration) {
	for end := m.w.Since() + d; m.w.Since() < end; {
		m.w.Advance(time.Second)
		m.mu.Lock()
		down := m.down
		m.mu.Unlock()
		if down {
			m.agent.Kill()
			m.w.Advance(time.Minute)
			m.mu.Lock()
			m.down = false
			m.boots++
			m.mu.Unlock()
			m.w.Say("the machine is up, with boot ID %s", m.BootID())
			m.start()
		}
		select {
		case <-m.agent.Done():
			m.w.Advance(10 * time.Second)
			m.start()
		default:
		}
	}
}

// expect fails the check if the machine has not been rebooted that many times, or the annotations do not say so.
func (m *machine) expect(reboots int, why string) {
	m.mu.Lock()
	got := m.boots - 1
	m.mu.Unlock()
	node := check.Must(m.w.Client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{}))
	_, now := node.Annotations[Now]
	_, inProgress := node.Annotations[InProgress]
	switch {
	case got < reboots && !now && !inProgress:
		m.w.Failf("%sThe annotations of node-1 say that its reboot is complete, and the machine has never been rebooted.", why)
	case got < reboots:
		m.w.Failf("%sTen minutes later, the machine has not been rebooted, and node-1 is still marked as rebooting. It keeps its slot, and no other Node may reboot.", why)
	case got > reboots:
		m.w.Failf("%sThe machine was rebooted %d times; once would have been enough.", why, got)
	case now || inProgress:
		m.w.Failf("%sThe machine has been rebooted, and node-1 is still marked as rebooting. It keeps its slot, and no other Node may reboot.", why)
	case node.Annotations["owner"] != "ops":
		m.w.Failf("%sNode node-1 has lost its annotation owner.", why)
	}
}

//go:build exercise

package notrebooted

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
		check.Scene{Name: "a machine reboots", Play: func(w *check.World) {
			m := begin(w, habits{})
			m.run(10 * time.Minute)
			m.expect(1, "")
		}},
		check.Scene{Name: "the agent is killed before it can reboot the machine", Play: func(w *check.World) {
			killAfterWrite(w)
			m := begin(w, habits{})
			m.run(10 * time.Minute)
			m.expect(1, "The agent was killed right after it had marked node-1 as rebooting, and was started again. ")
		}},
		check.Scene{Name: "the machine refuses to reboot at first", Play: func(w *check.World) {
			m := begin(w, habits{refuse: 3})
			m.run(10 * time.Minute)
			m.expect(1, "The machine refused to reboot three times, because an update was running. ")
		}},
		check.Scene{Name: "the agent is killed before it can reboot the machine, which then refuses", Play: func(w *check.World) {
			killAfterWrite(w)
			m := begin(w, habits{refuse: 3})
			m.run(10 * time.Minute)
			m.expect(1, "The agent was killed right after it had marked node-1 as rebooting, and was started again. Then the machine refused to reboot three times. ")
		}},
		check.Scene{Name: "the machine takes a while to go down", Play: func(w *check.World) {
			m := begin(w, habits{goesDownIn: 30 * time.Second})
			m.run(10 * time.Minute)
			m.expect(1, "The machine took half a minute to go down. ")
		}},
		check.Scene{Name: "an agent of an older version has not written a boot ID", Play: func(w *check.World) {
			m := begin(w, habits{})
			m.run(5 * time.Minute)
			m.expect(1, "")
			n := m.node()
			n.Annotations[InProgress] = ""
			check.Must(w.Client.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}))
			m.run(20 * time.Minute)
			m.mu.Lock()
			reboots := m.boots - 2
			m.mu.Unlock()
			if reboots > 1 {
				w.Failf("Node node-1 was marked as rebooting, without a boot ID. In twenty minutes, the machine was rebooted %d times.", reboots)
			}
			if m.keepsSlot() {
				w.Failf("Node node-1 was marked as rebooting, without a boot ID. Twenty minutes later, it still is. It keeps its slot, and no other Node may reboot.")
			}
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
	// goesDownIn is how long the machine takes to go down after it has answered. If it is 0, it answers when it is down.
	goesDownIn time.Duration

	mu     sync.Mutex
	boots  int // since the machine was installed
	refuse int // number of reboots that the machine still refuses
	down   bool
}

// habits are what a machine does when it is to reboot.
type habits struct {
	refuse     int           // how many reboots it refuses at first
	goesDownIn time.Duration // as in machine
}

// begin starts the agent of a machine. What the machine does must be known by then: the agent may be quick.
func begin(w *check.World, as habits) *machine {
	w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{Now: "", "owner": "ops"}}})
	m := &machine{w: w, boots: 1, refuse: as.refuse, goesDownIn: as.goesDownIn}
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
	if m.refuse > 0 {
		m.refuse--
		m.mu.Unlock()
		m.w.Say("the machine refuses to reboot")
		return errors.New("logind: the operation is inhibited")
	}
	again := m.down
	m.down = true
	m.mu.Unlock()
	m.w.Say("the machine goes down")
	if m.goesDownIn > 0 && !again {
		return nil
	}
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
			m.w.Never(m.goesDownIn, func() bool { return !m.keepsSlot() }, "The machine was asked to reboot and was still going down. Node node-1 was no longer marked as rebooting: it gave its slot to another Node.")
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

func (m *machine) node() *corev1.Node {
	return check.Must(m.w.Client.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{}))
}

// keepsSlot reports whether no other Node may reboot.
func (m *machine) keepsSlot() bool {
	annotations := m.node().Annotations
	_, now := annotations[Now]
	_, inProgress := annotations[InProgress]
	return now || inProgress
}

// expect fails the check if the machine has not been rebooted that many times, or the annotations do not say so.
func (m *machine) expect(reboots int, why string) {
	m.mu.Lock()
	got := m.boots - 1
	m.mu.Unlock()
	keepsSlot := m.keepsSlot()
	switch {
	case got < reboots && !keepsSlot:
		m.w.Failf("%sThe annotations of node-1 say that its reboot is complete, and the machine has never been rebooted.", why)
	case got < reboots:
		m.w.Failf("%sTen minutes later, the machine has not been rebooted, and node-1 is still marked as rebooting. It keeps its slot, and no other Node may reboot.", why)
	case got > reboots:
		m.w.Failf("%sThe machine was rebooted %d times; once would have been enough.", why, got)
	case keepsSlot:
		m.w.Failf("%sThe machine has been rebooted, and node-1 is still marked as rebooting. It keeps its slot, and no other Node may reboot.", why)
	case m.node().Annotations["owner"] != "ops":
		m.w.Failf("%sNode node-1 has lost its annotation owner.", why)
	}
}

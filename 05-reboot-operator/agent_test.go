package reboot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/reboot/agent"
	"example.com/controllers/reboot/protocol"
)

// A3: the reboot command succeeds, and the machine does not reboot.
func TestNoRebootWithoutANewBootID(t *testing.T) {
	for name, breakIt := range map[string]func(*machine){
		"nothing happens":                       func(m *machine) { m.broken = true },
		"it comes back with the boot ID it had": func(m *machine) { m.sameID = true },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addMachines(2)
				m := w.machines["node-00"]
				breakIt(m)
				w.startController(0)
				w.request(w.names()...)
				advance(9 * time.Minute)
				require.Empty(t, w.told("node-00", "RebootTimeout"))
				advance(time.Hour)
				node := w.node("node-00")
				require.Equal(t, protocol.InProgress, protocol.PhaseOf(node))
				require.True(t, node.Spec.Unschedulable)
				require.Equal(t, []string{"The machine has not started with another boot ID for 10m0s; the Node keeps its slot"}, w.told("node-00", "RebootTimeout"))
				require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-01")))
				w.locked(func() {
					assert.Greater(t, m.asked, 1, "it is asked again")
					m.broken, m.sameID = false, false
				})
				advance(10 * time.Minute)
				w.requireDone(1, "node-00", "node-01")
			})
		})
	}
}

// A4: the machine is back before anybody notices that it was away.
func TestAFastReboot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.machines["node-00"].fast = true
		w.startController(0)
		w.request("node-00")
		advance(time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A6: what somebody else has cordoned stays cordoned.
func TestCordonedBefore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.edit("node-00", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		w.startController(0)
		w.request("node-00")
		advance(2 * time.Minute)
		require.Equal(t, 1, w.machines["node-00"].boots())
		require.Equal(t, protocol.Idle, protocol.PhaseOf(w.node("node-00")))
		require.True(t, w.node("node-00").Spec.Unschedulable)
	})
}

// A15: annotations that are not there, and values that nobody writes.
func TestStrangeAnnotations(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.most = 0
		w.addMachines(5)
		w.startController(0)
		w.annotate("node-04", protocol.InProgressAnnotation, "boot-0")
		w.annotate("node-00", protocol.NowAnnotation, "by hand")
		w.annotate("node-01", protocol.AdmittedAnnotation, "yesterday")
		w.annotate("node-02", protocol.SinceAnnotation, "☃")
		w.annotate("node-02", protocol.FailuresAnnotation, "-7")
		w.annotate("node-02", protocol.RetryAfterAnnotation, "never")
		w.annotate("node-02", protocol.LastAttemptAnnotation, "")
		w.request("node-02")
		w.edit("node-03", func(node *corev1.Node) { node.Annotations = nil })
		advance(5 * time.Minute)
		require.Equal(t, 0, w.machines["node-00"].boots(), "it was never admitted")
		require.Equal(t, protocol.Idle, protocol.PhaseOf(w.node("node-01")))
		require.Equal(t, 0, w.machines["node-01"].boots())
		w.requireDone(1, "node-02")
		w.requireDone(0, "node-03", "node-04")
		require.Len(t, w.told("node-04", "RebootRefused"), 1)
		require.Empty(t, w.told("node-04", "Rebooted"))
	})
}

// A16: the agent starts after the reboot, and the API server does not answer for minutes.
func TestTheAPIServerIsDownAfterTheReboot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.startController(0)
		w.request("node-00")
		advance(10 * time.Second)
		require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-00")))
		w.setDown(true)
		advance(10 * time.Minute)
		require.Equal(t, 1, w.machines["node-00"].boots())
		require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-00")))
		w.setDown(false)
		advance(2 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A17: the request is withdrawn, at any time before the agent has seen it.
func TestCancel(t *testing.T) {
	for _, c := range []struct {
		phase  protocol.Phase
		remove string
	}{{protocol.Needed, protocol.NeededAnnotation}, {protocol.Draining, protocol.NeededAnnotation}, {protocol.Approved, protocol.NowAnnotation}} {
		t.Run(string(c.phase), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				m := w.addMachine("node-00")
				if c.phase == protocol.Needed {
					w.pause(true)
				}
				if c.phase == protocol.Draining {
					w.addPod("web", "node-00")
					w.grace = time.Hour
				}
				w.startController(0)
				w.request("node-00")
				advance(30 * time.Second)
				require.Equal(t, c.phase, protocol.PhaseOf(w.node("node-00")))
				w.annotate("node-00", c.remove, "-")
				advance(time.Second)
				m.startAgent()
				w.pause(false)
				advance(time.Hour)
				require.Equal(t, 0, m.boots())
				require.Equal(t, protocol.Idle, protocol.PhaseOf(w.node("node-00")))
				require.False(t, w.node("node-00").Spec.Unschedulable)
			})
		})
	}
}

// The request is withdrawn just before the drain ends, so the controller's cache does not show it yet.
func TestCancelWithALateWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.addPod("web", "node-00")
		w.grace = time.Minute
		w.request("node-00") // first, or the controller may learn of it late
		w.startController(5 * time.Second)
		for w.evicted() == 0 {
			advance(time.Second)
		}
		advance(58 * time.Second)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
		require.NotEmpty(t, w.pods("node-00"))
		w.annotate("node-00", protocol.NeededAnnotation, "-")
		advance(time.Hour)
		w.requireDone(0, "node-00")
	})
}

// An agent that starts while its Node is in progress does not know whether the machine was asked to reboot a moment ago, and
// gives it the time to go down.
func TestARestartedAgentWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		m := w.machines["node-00"]
		m.broken = true
		w.startController(0)
		w.request("node-00")
		advance(10 * time.Second)
		require.Equal(t, 1, m.timesAsked())
		m.agent.stop()
		m.startAgent()
		advance(w.agent.RebootRetry - time.Second)
		require.Equal(t, 1, m.timesAsked())
		advance(2 * time.Second)
		require.Equal(t, 2, m.timesAsked())
	})
}

// The watch of the agent is late, so its cache still shows a reboot in progress that is over for everybody else.
func TestAStaleCacheRebootsNothing(t *testing.T) {
	giveUp := func(w *world) { w.annotate("node-00", protocol.InProgressAnnotation, "-") }
	for name, c := range map[string]struct {
		fails     bool // the request for the reboot; otherwise the machine ignores it
		meanwhile func(w *world)
	}{
		"somebody has given up on it":                 {false, giveUp},
		"somebody has given up on it after a failure": {true, giveUp},
		"the Node has been deleted":                   {false, func(w *world) { w.deleteNode("node-00") }},
		"it is that of an earlier boot":               {false, func(w *world) { w.annotate("node-00", protocol.InProgressAnnotation, "boot-7") }},
		"it is that of an earlier Node of the name": {false, func(w *world) {
			node := w.node("node-00")
			w.deleteNode("node-00")
			node.UID = "another"
			w.create(nodeResource, node)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addMachines(1)
				m := w.machines["node-00"]
				m.broken = !c.fails
				if c.fails {
					m.fails = 1000
				}
				w.startController(0)
				w.request("node-00")
				advance(30 * time.Second)
				require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-00")))
				w.locked(func() {
					for one := range w.watchers {
						if one.restrictions.Fields != nil && one.restrictions.Fields.String() == "metadata.name=node-00" {
							one.lag = 10 * time.Minute
						}
					}
				})
				c.meanwhile(w)
				w.locked(func() { m.broken, m.fails = false, 0 })
				asked := m.timesAsked()
				require.Positive(t, asked)
				advance(5 * time.Minute)
				require.Equal(t, asked, m.timesAsked())
			})
		})
	}
}

// The request for the reboot fails. The agent says so, and repeats it without waiting for the machine to go down.
func TestTheRebootCommandFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		m := w.machines["node-00"]
		m.fails = 3 // the Event about the first needs a moment
		agent := m.agent
		w.startController(0)
		w.request("node-00")
		advance(time.Minute)
		w.requireDone(1, "node-00")
		failures := agent.errors()
		require.Len(t, failures, 3)
		before := 0
		for _, line := range failures {
			_, number, _ := strings.Cut(strings.TrimSpace(line), "failures=")
			n, err := strconv.Atoi(number)
			require.NoError(t, err, line)
			require.Greater(t, n, before, "a conflict counts too, and is not logged")
			before = n
		}
		require.Equal(t, []string{"Cannot reboot the machine: out of order"}, w.told("node-00", "RebootFailed"))
	})
}

// Somebody else has changed the Node before the agent's write. That is no failure: the agent tries again with the changed one.
func TestAConflictIsNotLogged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		agent := w.machines["node-00"].agent
		conflicts := 0
		agent.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if conflicts++; conflicts > 2 {
				return false, nil, nil
			}
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "node-00", errors.New("changed"))
		})
		w.startController(0)
		w.request("node-00")
		advance(time.Minute)
		w.requireDone(1, "node-00")
		require.Greater(t, conflicts, 2)
		require.Empty(t, agent.errors())
	})
}

// A second request during the reboot is a second reboot.
func TestARequestDuringTheReboot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		controller := w.startController(0)
		w.request("node-00")
		advance(10 * time.Second)
		require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-00")))
		w.request("node-00")
		advance(5 * time.Minute)
		w.requireDone(2, "node-00")
		got := controller.metrics(t)
		require.EqualValues(t, 2, got["reboot_completed_total"])
		require.EqualValues(t, 2, got["reboot_duration_seconds count"])
	})
}

// An agent that does not act loses the slot, and gets another try.
func TestTheAgentDoesNotAct(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachine("node-00")
		w.addMachine("node-01").startAgent()
		w.startController(0)
		w.request("node-00", "node-01")
		advance(4 * time.Minute)
		require.Equal(t, protocol.Approved, protocol.PhaseOf(w.node("node-00")))
		advance(2 * time.Minute)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")))
		require.Equal(t, "kernel", w.node("node-00").Annotations[protocol.NeededAnnotation])
		require.Equal(t, []string{"Not rebooted; next attempt in 5m0s: the agent has not acted for 5m0s"}, w.told("node-00", "AgentTimeout"))
		w.machines["node-00"].startAgent()
		advance(20 * time.Minute)
		w.requireDone(1, "node-00", "node-01")
	})
}

// There is no controller, or the machine might be off before the Event is written.
func TestTheSentinelSaysWhy(t *testing.T) {
	command := agent.Command{Line: "test -e " + t.TempDir()}
	inWorld(t, func(t *testing.T, w *world) {
		w.agent.Sentinel = &agent.Sentinel{Command: command, Interval: time.Minute}
		w.addMachines(1)
		advance(time.Hour)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")))
		why := fmt.Sprintf("The machine asks for a reboot: the sentinel command %q exited with status 0", command.Line)
		require.Equal(t, []string{why}, w.told("node-00", "RebootNeeded"))
	})
}

// A cancelled request is not ignored for ever on a machine that cannot ask by itself.
func TestAMachineWithoutASentinelIgnoresNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.annotate("node-00", protocol.SentinelIgnoredAnnotation, "by hand")
		advance(time.Minute)
		require.NotContains(t, w.node("node-00").Annotations, protocol.SentinelIgnoredAnnotation)
	})
}

// The machine asks for a reboot by itself. If the reboot does not help, it is not repeated.
func TestSentinelAsksForAReboot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "reboot-required")
	inWorld(t, func(t *testing.T, w *world) {
		w.agent.Sentinel = &agent.Sentinel{Command: agent.Command{Line: "test -e " + file}, Interval: time.Minute}
		w.addMachines(1)
		w.startController(0)
		advance(5 * time.Minute)
		w.requireDone(0, "node-00")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		advance(time.Hour)
		require.Equal(t, 1, w.machines["node-00"].boots(), "the file is still there")
		require.Len(t, w.told("node-00", "RebootDidNotHelp"), 1)
		require.NoError(t, os.Remove(file))
		advance(2 * time.Minute)
		w.requireDone(1, "node-00")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		advance(5 * time.Minute)
		require.Equal(t, 2, w.machines["node-00"].boots())
		require.NoError(t, os.Remove(file))
		advance(2 * time.Minute)
		w.requireDone(2, "node-00")
	})
}

// If the check fails right after a reboot, and the machine asks again later, it may be for the same reason as before.
func TestSentinelFailsAfterTheReboot(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	inWorld(t, func(t *testing.T, w *world) {
		w.agent.Sentinel = &agent.Sentinel{Command: agent.Command{Line: "test ! -e " + broken + " || exit 2"}, Interval: time.Minute} // asks
		w.addMachines(1)
		w.startController(0)
		advance(10 * time.Second)
		require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-00")))
		require.NoError(t, os.WriteFile(broken, nil, 0o600))
		advance(10 * time.Minute)
		require.Equal(t, protocol.Idle, protocol.PhaseOf(w.node("node-00")))
		require.NoError(t, os.Remove(broken))
		advance(time.Hour)
		require.Equal(t, 1, w.machines["node-00"].boots())
	})
}

// A22: a sentinel that cannot be checked is an Event, once for each way in which it fails, and again after it has worked.
func TestASentinelThatFails(t *testing.T) {
	dir := t.TempDir()
	set := func(text string) { require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte(text), 0o600)) }
	set("2")
	inWorld(t, func(t *testing.T, w *world) {
		w.agent.Sentinel = &agent.Sentinel{Command: agent.Command{Line: "exit $(cat " + dir + "/status)"}, Interval: time.Minute}
		w.addMachines(1)
		advance(time.Hour)
		require.Len(t, w.told("node-00", "SentinelFailed"), 1)
		require.Contains(t, w.told("node-00", "SentinelFailed")[0], "Cannot tell whether the machine asks for a reboot: the sentinel command")
		set("3")
		advance(time.Hour)
		require.Len(t, w.told("node-00", "SentinelFailed"), 2)
		set("1")
		advance(time.Hour)
		set("3")
		advance(time.Hour)
		require.Len(t, w.told("node-00", "SentinelFailed"), 3, "it has worked in between")
		require.Equal(t, protocol.Idle, protocol.PhaseOf(w.node("node-00")))
		set("0")
		advance(time.Hour)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")))
	})
}

// Somebody uncordons a Node whose machine has not gone down yet, so it has Pods again. It is not rebooted under them.
func TestUncordonedDuringTheReboot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.machines["node-00"].broken = true
		w.startController(0)
		w.request("node-00")
		advance(time.Minute)
		require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-00")))
		w.edit("node-00", func(node *corev1.Node) { node.Spec.Unschedulable = false })
		w.addPod("db", "node-00")
		asked := w.machines["node-00"].timesAsked()
		advance(time.Hour)
		require.Equal(t, asked, w.machines["node-00"].timesAsked())
		require.Equal(t, []string{"db"}, w.pods("node-00"))
		require.Len(t, w.told("node-00", "Uncordoned"), 1)

		w.machines["node-00"].broken = false
		w.edit("node-00", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		w.removePod("db", "db@node-00")
		advance(10 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A sentinel still asks for the reboot that was cancelled without "kubectl reboot cancel": the Node is not drained again.
func TestCancelWithASentinel(t *testing.T) {
	for annotation, phase := range map[string]protocol.Phase{protocol.NeededAnnotation: protocol.Draining, protocol.InProgressAnnotation: protocol.InProgress} {
		inWorld(t, func(t *testing.T, w *world) {
			w.agent.Sentinel = &agent.Sentinel{Command: agent.Command{Line: "true"}, Interval: time.Minute}
			w.addMachines(1)
			w.machines["node-00"].broken = true
			w.addPod("db", "node-00")
			w.protect("db", phase == protocol.Draining)
			w.startController(0)
			advance(time.Minute)
			require.Equal(t, phase, protocol.PhaseOf(w.node("node-00")))
			w.annotate("node-00", annotation, "-")
			advance(time.Hour)
			node := w.node("node-00")
			require.Equal(t, protocol.Idle, protocol.PhaseOf(node))
			require.False(t, node.Spec.Unschedulable)
			require.Len(t, w.told("node-00", "RebootAdmitted"), 1)
		})
	}
}

// A machine that does not reboot is worth a Warning at each attempt, although its boot ID is the same.
func TestEachRebootThatTakesTooLong(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.machines["node-00"].broken = true
		w.startController(0)
		for attempt := range 2 {
			w.request("node-00")
			advance(time.Hour)
			require.Len(t, w.told("node-00", "RebootTimeout"), attempt+1)
			w.annotate("node-00", protocol.InProgressAnnotation, "-")
			advance(time.Minute)
			require.Equal(t, protocol.Idle, protocol.PhaseOf(w.node("node-00")))
		}
	})
}

package reboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/policy"
	"example.com/controllers/reboot/protocol"
)

func TestRebootsNodesOneAfterAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(5)
		for _, name := range w.names() {
			w.addPod("web-"+name, name)
		}
		controller := w.startController(0)
		w.request(w.names()[:4]...)
		advance(10 * time.Minute)
		w.requireDone(1, w.names()[:4]...)
		w.requireDone(0, w.names()[4])
		for _, name := range w.names()[:4] {
			require.Empty(t, w.pods(name))
			require.Len(t, w.told(name, "RebootAdmitted"), 1)
			require.Len(t, w.told(name, "Rebooted"), 1)
			require.Regexp(t, "^Rebooted in 3[01]s: the boot ID was boot-0 and is boot-1$", w.told(name, "Rebooted")[0])
		}
		require.Len(t, w.pods(w.names()[4]), 1, "nobody asked to reboot it")
		require.Empty(t, controller.errors())
		writes := w.written()
		require.Equal(t, 4*(1+4), writes, "for each Node, one write of the ledger and four of the Node")
		advance(time.Hour)
		require.Equal(t, writes, w.written(), "at rest")
	})
}

// Changes that come close together have one decision, and those that go on do not put it off.
func TestDecidesSoonAndNotForEachChange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(30)
		w.most, w.options.MaxUnavailable = 10, intstr.FromInt32(10)
		controller := w.startController(0)
		advance(time.Minute)
		decisions := func() (reads int) { // of the ledger, which each decision that may admit a Node reads once
			for _, action := range controller.Actions() {
				if action.Matches("get", "configmaps") {
					reads++
				}
			}
			return reads
		}
		for round := range 2 {
			before := decisions()
			names := w.names()[10*round : 10*round+10]
			for _, name := range names {
				w.request(name)
				advance(10 * time.Millisecond)
			}
			for range 45 { // others change all the time
				w.annotate("node-28", protocol.Prefix+"other", fmt.Sprint(time.Now()))
				advance(10 * time.Millisecond)
			}
			for _, name := range names {
				require.NotEqual(t, protocol.Needed, protocol.PhaseOf(w.node(name)), "%s, within 550 ms", name)
			}
			require.Equal(t, 1, decisions()-before)
			advance(30 * time.Minute)
			w.requireDone(1, names...)
		}
	})
}

// A1: the budget holds although the cache does not show what has just been admitted.
func TestTheBudgetHoldsWithALateWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.MaxUnavailable, w.options.Workers, w.most = intstr.FromInt32(3), 8, 3
		w.addMachines(50)
		w.startController(5 * time.Second)
		w.request(w.names()...)
		w.advanceUntilIdle(2 * time.Hour)
		w.requireDone(1, w.names()...)
	})
}

// A11: two controllers both believe that they lead, one of them with an old cache.
func TestTheBudgetHoldsWithTwoControllers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.MaxUnavailable, w.most = intstr.FromInt32(2), 2
		w.addMachines(20)
		w.startController(0)
		w.startController(20 * time.Second)
		w.request(w.names()...)
		w.advanceUntilIdle(2 * time.Hour)
		w.requireDone(1, w.names()...)
	})
}

// A11: another controller admits a Node between the moment at which this one reads the ledger and the moment at which it
// writes it.
func TestAnotherControllerAdmitsANodeMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(2)
		w.onLedger = func() {
			w.onLedger = nil
			node, err := w.get("node-01")
			require.NoError(t, err)
			o, err := w.objects.Get(configMapResource, namespace, w.options.Ledger)
			require.NoError(t, err)
			configMap := o.(*corev1.ConfigMap).DeepCopy()
			configMap.Data = map[string]string{protocol.SlotsKey: fmt.Sprintf("{%q:%q}", node.Name, node.ResourceVersion)}
			require.NoError(t, w.update(configMapResource, configMap))
			node.Spec.Unschedulable = true
			node.Annotations = map[string]string{protocol.NeededAnnotation: "", protocol.CordonedAnnotation: "true", protocol.AdmittedAnnotation: protocol.FormatTime(time.Now())}
			require.NoError(t, w.update(nodeResource, node))
		}
		w.startController(0)
		w.request("node-00")
		advance(10 * time.Minute)
		require.Nil(t, w.onLedger)
		w.requireDone(1, w.names()...)
	})
}

// A2: whichever process is killed after whichever of its writes, the end is the same.
func TestSurvivesKills(t *testing.T) {
	writes := 0
	play := func(t *testing.T, kill int) {
		inWorld(t, func(t *testing.T, w *world) {
			w.addMachines(3)
			for _, name := range w.names() {
				w.addPod("web-"+name, name)
			}
			w.onWrite = func(p *process) {
				if w.writes != kill {
					return
				}
				p.dead = true
				p.cancel()
				time.AfterFunc(5*time.Second, func() {
					if p.name == "controller" {
						w.startController(0)
						return
					}
					var of *machine
					w.locked(func() {
						for _, m := range w.machines {
							if m.agent == p && !m.rebooting {
								of = m
							}
						}
					})
					if of != nil {
						of.startAgent()
					}
				})
			}
			w.startController(0)
			w.request(w.names()...)
			w.advanceUntilIdle(30 * time.Minute)
			w.requireDone(1, w.names()...)
			writes = w.written()
		})
	}
	play(t, 0)
	undisturbed := writes
	for kill := 1; kill <= undisturbed; kill++ {
		t.Run(fmt.Sprint("after write ", kill), func(t *testing.T) { play(t, kill) })
	}
}

// A5, A10: a Node that is gone, or that nobody hears from.
func TestUnavailableNodes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(3)
		w.machines["node-00"].off = true
		w.startController(0)
		w.request("node-00", "node-01")
		advance(5 * time.Minute)
		require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-00")))
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-01")), "node-00 holds the only slot")
		w.deleteNode("node-00")
		advance(5 * time.Minute)
		w.requireDone(1, "node-01")

		w.locked(func() { w.most = 0 }) // the Node is unavailable without us
		w.machines["node-02"].setReady(corev1.ConditionUnknown)
		w.request("node-01")
		advance(5 * time.Minute)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-01")), "node-02 is unavailable")
		w.request("node-02")
		advance(10 * time.Minute)
		w.requireDone(1, "node-02")
		w.requireDone(2, "node-01")
	})
}

// A7: somebody uncordons the Node during the drain, or after it.
func TestUncordonedBeforeTheReboot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachine("node-00")
		w.addPod("web", "node-00")
		w.grace, w.options.AgentTimeout = 5*time.Minute, time.Hour
		w.startController(0)
		w.request("node-00")
		advance(time.Minute)
		uncordon := func(node *corev1.Node) { node.Spec.Unschedulable = false }
		w.addPod("late", "node-00")
		w.edit("node-00", uncordon)
		advance(time.Second)
		require.True(t, w.node("node-00").Spec.Unschedulable, "during the drain")
		advance(8 * time.Minute)
		require.Empty(t, w.pods("node-00"))
		require.Equal(t, protocol.Approved, protocol.PhaseOf(w.node("node-00")))

		w.addPod("later", "node-00") // first, or the Node may be drained again before
		w.edit("node-00", uncordon)
		advance(time.Second)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")), "after the drain")
		require.True(t, w.node("node-00").Spec.Unschedulable)
		require.Len(t, w.told("node-00", "CordonedAgain"), 2)
		advance(6 * time.Minute)
		w.machines["node-00"].startAgent()
		advance(2 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A8: a PodDisruptionBudget that allows nothing.
func TestGivesUpADrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(2)
		w.addPod("db", "node-00")
		w.addPod("web", "node-00")
		w.protect("db", true)
		w.startController(0)
		w.request("node-00", "node-01")
		advance(9 * time.Minute)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
		require.Equal(t, []string{"Pod shop/db cannot be evicted: The disruption budget db needs 1 healthy pods and has 1 currently"},
			w.told("node-00", "DrainWaiting"), "one Event for each attempt")
		last := map[string]time.Time{}
		w.locked(func() {
			for _, e := range w.evictions {
				assert.GreaterOrEqual(t, e.at.Sub(last[e.pod]), 5*time.Second, e.pod)
				last[e.pod] = e.at
			}
		})
		advance(2 * time.Minute)
		node := w.node("node-00")
		require.Equal(t, protocol.Needed, protocol.PhaseOf(node))
		require.False(t, node.Spec.Unschedulable)
		require.Equal(t, "1", node.Annotations[protocol.FailuresAnnotation])
		require.Equal(t, []string{"Not rebooted; next attempt in 5m0s: the drain took longer than 10m0s: Pod shop/db cannot be evicted: The disruption budget db needs 1 healthy pods and has 1 currently"},
			w.told("node-00", "DrainTimeout"))
		advance(time.Minute)
		w.requireDone(1, "node-01")
		advance(18 * time.Minute)
		require.Equal(t, "2", w.node("node-00").Annotations[protocol.FailuresAnnotation])
		w.protect("db", false)
		advance(15 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A7, A8: somebody uncordons the Node again and again during a drain that waits. The time for the drain runs from the admission,
// not from the last time that the Node was cordoned.
func TestUncordoningDoesNotProlongADrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachine("node-00")
		w.addPod("db", "node-00")
		w.protect("db", true)
		w.startController(0)
		w.request("node-00")
		for range 3 {
			advance(3 * time.Minute)
			w.edit("node-00", func(node *corev1.Node) { node.Spec.Unschedulable = false })
		}
		advance(30 * time.Second)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
		require.Len(t, w.told("node-00", "CordonedAgain"), 3)
		advance(time.Minute)
		require.Len(t, w.told("node-00", "DrainTimeout"), 1)
		require.False(t, w.node("node-00").Spec.Unschedulable)
	})
}

// No controller was running while the time for a drain passed. The next one does not evict Pods for a reboot that it gives up.
func TestADrainThatIsOverdueEvictsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		pods   []string
		phase  protocol.Phase
		events []string
	}{
		"Pods are left": {[]string{"db", "web"}, protocol.Needed, []string{"Not rebooted; next attempt in 5m0s: the drain took longer than 10m0s: " +
			"Pod shop/db cannot be evicted: The disruption budget db needs 1 healthy pods and has 1 currently; Pod shop/web has not been evicted"}},
		"no Pods are left": {nil, protocol.Approved, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addMachine("node-00")
				for _, pod := range c.pods {
					w.addPod(pod, "node-00")
				}
				w.protect("db", true)
				w.edit("node-00", func(node *corev1.Node) {
					node.Spec.Unschedulable = true
					node.Annotations = map[string]string{protocol.NeededAnnotation: "kernel", protocol.CordonedAnnotation: "true", protocol.AdmittedAnnotation: protocol.FormatTime(time.Now().Add(-time.Hour))}
				})
				w.startController(0)
				advance(time.Minute)
				require.Equal(t, c.phase, protocol.PhaseOf(w.node("node-00")))
				require.Equal(t, c.events, w.told("node-00", "DrainTimeout"))
				require.Equal(t, c.pods, w.pods("node-00"))
			})
		})
	}
}

// A StatefulSet creates a Pod again under its name. The new one, on another Node, is not evicted in place of the old one.
func TestAPodThatWasCreatedAgainElsewhere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(2)
		w.addPod("db-0", "node-00")
		w.onEvict = func() {
			w.onEvict = nil
			old, err := w.objects.Get(podResource, "shop", "db-0")
			require.NoError(t, err)
			require.NoError(t, w.remove(podResource, old.(*corev1.Pod).DeepCopy()))
			require.NoError(t, w.add(podResource, nodetest.NewPod("db-0", "node-01")))
		}
		w.startController(0)
		w.request("node-00")
		advance(time.Minute)
		require.Nil(t, w.onEvict)
		require.Equal(t, []string{"db-0"}, w.pods("node-01"))
		w.requireDone(1, "node-00")
		require.Empty(t, w.told("node-00", "DrainWaiting"))
	})
}

// The drain goes on when the API server is back: no event of a Node would remind the controller of it.
func TestTheAPIServerIsDownDuringADrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.addPod("web", "node-00")
		w.grace = time.Minute
		controller := w.startController(0)
		w.request("node-00")
		advance(10 * time.Second)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
		w.setDown(true)
		advance(30 * time.Second)
		failures := regexp.MustCompile(`Failed, requeueing with backoff.* failures=(\d+)`).FindAllStringSubmatch(controller.log.String(), -1)
		require.Greater(t, len(failures), 3)
		for i, failure := range failures {
			require.Equal(t, strconv.Itoa(i+1), failure[1], "%s", failure[0])
		}
		w.setDown(false)
		advance(5 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A drain that cannot be looked at goes on when it can be, unless it takes too long.
func TestADrainThatCannotBeLookedAt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.addPod("web", "node-00")
		controller := w.startController(0)
		var fails atomic.Bool
		fails.Store(true)
		controller.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return fails.Load(), nil, apierrors.NewInternalError(errors.New("out of order"))
		})
		w.request("node-00")
		advance(9 * time.Minute)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
		require.Equal(t, []string{"list the Pods of Node node-00: Internal error occurred: out of order"}, w.told("node-00", "EvictionFailed"))
		advance(2 * time.Minute)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")))
		require.Equal(t, []string{"Not rebooted; next attempt in 5m0s: the drain took longer than 10m0s: list the Pods of Node node-00: Internal error occurred: out of order"},
			w.told("node-00", "DrainTimeout"))
		fails.Store(false)
		advance(10 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// Whichever write of the controller fails, the end is the same.
func TestAWriteThatFailsIsRepeated(t *testing.T) {
	writes := 0
	play := func(t *testing.T, fails int) {
		inWorld(t, func(t *testing.T, w *world) {
			w.options.MaxUnavailable, w.most = intstr.FromInt32(2), 2
			w.addMachines(2)
			w.addPod("web", "node-01")
			w.grace = 5 * time.Minute
			controller := w.startController(0)
			writes = 0
			fail := func(clienttesting.Action) (bool, runtime.Object, error) {
				writes++
				return writes == fails, nil, apierrors.NewInternalError(errors.New("out of order"))
			}
			controller.PrependReactor("patch", "nodes", fail)
			controller.PrependReactor("update", "configmaps", fail)
			w.request(w.names()...)
			advance(time.Minute)
			require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-01")))
			w.edit("node-01", func(node *corev1.Node) { delete(node.Annotations, protocol.NeededAnnotation) })
			advance(10 * time.Minute)
			w.requireDone(1, "node-00")
			require.Equal(t, protocol.Idle, protocol.PhaseOf(w.node("node-01")))
			require.False(t, w.node("node-01").Spec.Unschedulable)
			require.Equal(t, []string{"The request for a reboot was withdrawn"}, w.told("node-01", "RebootCancelled"))
		})
	}
	play(t, 0)
	undisturbed := writes
	require.Greater(t, undisturbed, 3)
	for n := 1; n <= undisturbed; n++ {
		t.Run(fmt.Sprint("write ", n), func(t *testing.T) { play(t, n) })
	}
}

// A controller that starts while a Node waits for its agent, or for its machine, takes that time into account.
func TestTimeoutsOutliveTheController(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.addMachine("node-00")
		controller := w.startController(0)
		restart := func(after time.Duration) {
			advance(after)
			controller.stop()
			controller = w.startController(0)
		}
		w.request("node-00")
		restart(3 * time.Minute)
		require.Equal(t, protocol.Approved, protocol.PhaseOf(w.node("node-00")))
		advance(2*time.Minute + time.Second)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")), "after --agent-timeout")

		m.off = true
		m.startAgent()
		advance(5 * time.Minute)
		require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-00")))
		restart(3 * time.Minute)
		advance(7*time.Minute + time.Second)
		require.Len(t, w.told("node-00", "RebootTimeout"), 1)
	})
}

// decide says when to decide again. It does not tell a Node that it is not selected: another controller may be for it.
func TestWhenToDecideAgain(t *testing.T) {
	retry := func(name string, in time.Duration) *corev1.Node {
		return nodetest.New(name, nodetest.Label("pool", "web"), nodetest.Annotation(protocol.NeededAnnotation, ""), nodetest.Annotation(protocol.FailuresAnnotation, "1"),
			nodetest.Annotation(protocol.RetryAfterAnnotation, protocol.FormatTime(time.Now().Add(in))))
	}
	other := nodetest.New("c", nodetest.Annotation(protocol.NeededAnnotation, ""))
	for _, test := range []struct {
		name  string
		nodes func() []*corev1.Node
		again time.Duration
		told  []string
	}{
		{"nothing waits", func() []*corev1.Node { return nil }, 0, nil},
		{"the first", func() []*corev1.Node { return []*corev1.Node{retry("a", 5*time.Minute), retry("b", 9*time.Minute)} }, 5 * time.Minute, nil},
		{"the last", func() []*corev1.Node { return []*corev1.Node{retry("a", 9*time.Minute), retry("b", 5*time.Minute)} }, 5 * time.Minute, nil},
		{"no time", func() []*corev1.Node { return []*corev1.Node{retry("a", 5*time.Minute), other} }, 5 * time.Minute, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := events.NewFakeRecorder(10)
				selector, err := labels.Parse("pool=web")
				require.NoError(t, err)
				c := &Controller{recorder: recorder, told: newTold(), metrics: newMetrics(nil, nil), Options: Options{
					Policy: policy.Policy{MaxUnavailable: intstr.FromInt32(1), MaxPerDomain: intstr.FromInt32(1), Selector: selector},
				}}
				again, any := c.decide(policy.State{Nodes: test.nodes()}, func(*corev1.Node) {})
				require.False(t, any)
				require.Equal(t, test.again, again)
				close(recorder.Events)
				var told []string
				for event := range recorder.Events {
					told = append(told, event)
				}
				require.Equal(t, test.told, told)
			})
		})
	}
}

// A9: the Pod of a StatefulSet comes back on another Node, under the same name.
func TestAPodThatIsRebornElsewhere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(2)
		w.addPod("db-0", "node-00")
		w.grace = time.Minute
		w.startController(0)
		w.request("node-00")
		advance(30 * time.Second)
		w.removePod("db-0", "db-0@node-00")
		w.addPod("db-0", "node-01")
		advance(5 * time.Minute)
		w.requireDone(1, "node-00")
		require.Equal(t, []string{"db-0"}, w.pods("node-01"))
	})
}

// A13: when the window closes, what has begun is completed, and nothing else begins.
func TestTheWindowCloses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) { // virtual time begins at midnight UTC
		var err error
		w.options.Window, err = policy.ParseWindow(nil, "22:00", "22:01", "UTC")
		require.NoError(t, err)
		w.addMachines(3)
		for _, name := range w.names() {
			w.addPod("web-"+name, name)
		}
		w.startController(0)
		w.request(w.names()...)
		advance(22*time.Hour - time.Second)
		require.Zero(t, w.written(), "before the window")
		advance(time.Hour)
		w.requireDone(1, "node-00", "node-01") // the second was admitted within the minute
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-02")))
		advance(24 * time.Hour)
		w.requireDone(1, w.names()...)
	})
}

// Every kubelet reports every few seconds. Only what a decision depends on makes the controller look at a Node, and only that
// and what the status shows makes "kubectl reboot status --watch" print it again.
func TestConcerns(t *testing.T) {
	for name, c := range map[string]struct {
		change            func(*corev1.Node)
		concerns, differs bool
	}{
		"a heartbeat":              {func(n *corev1.Node) { n.Status.Conditions[1].LastHeartbeatTime.Time = nodetest.Monday }, false, false},
		"another condition":        {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, false, false},
		"a boot":                   {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "other" }, false, true}, // which the agent looks at
		"it is not ready":          {nodetest.Ready(corev1.ConditionFalse), true, true},
		"it is cordoned":           {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true, true},
		"another Node of its name": {func(n *corev1.Node) { n.UID = "other" }, true, true},
		"an annotation":            {func(n *corev1.Node) { n.Annotations = map[string]string{protocol.NeededAnnotation: "kernel"} }, true, true},
		"it is being deleted":      {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: nodetest.Monday} }, false, true},
		"a label":                  {func(n *corev1.Node) { n.Labels = map[string]string{nodetest.ZoneLabel: "b"} }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodetest.New("a")
			c.change(node)
			require.Equal(t, c.concerns, protocol.Concerns(nodetest.New("a"), node))
			require.Equal(t, c.differs, protocol.Differ(nodetest.New("a"), node))
		})
	}
}

// A migration must not be interrupted: its Node waits for it, and the others do not.
func TestBlockingPods(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, app := range []string{"migration", "backup"} {
			w.options.BlockingPods = append(w.options.BlockingPods, labels.SelectorFromSet(labels.Set{"app": app}))
		}
		w.addMachines(3)
		w.addPod("migration", "node-00")
		w.addPod("web", "node-01") // which is evicted
		ended := nodetest.NewPod("backup", "node-02")
		ended.Status.Phase = corev1.PodSucceeded
		w.create(podResource, ended)
		w.startController(0)
		w.request(w.names()...)
		advance(10 * time.Minute)
		w.requireDone(1, "node-01", "node-02")
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")))
		require.Equal(t, []string{"migration"}, w.pods("node-00"))
		require.Equal(t, []string{"Not rebooting now: Pod shop/migration blocks it"}, w.told("node-00", "RebootRefused"))
		w.removePod("migration", "migration@node-00")
		advance(2 * time.Minute)
		w.requireDone(1, "node-00")

		advance(time.Hour)
		w.addPod("backup", "node-00")
		advance(time.Second) // until the controller has seen it
		w.request("node-00")
		advance(10 * time.Minute)
		require.Len(t, w.told("node-00", "RebootRefused"), 2, "once for each attempt")
		w.removePod("backup", "backup@node-00")
		advance(2 * time.Minute)
		w.requireDone(2, "node-00")
		require.Len(t, w.told("node-00", "RebootAdmitted"), 2)
	})
}

// A failing eviction gets one Event for each attempt, and a refusal that follows gets its own.
func TestTellsWhyEvictionsFail(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.addPod("db", "node-00")
		w.addPod("web", "node-00")
		w.protect("db", true)
		w.locked(func() { w.evictErr = apierrors.NewInternalError(errors.New("two budgets")) })
		w.startController(0)
		w.request("node-00")
		advance(2 * time.Minute)
		const failed = "evict Pod shop/db: Internal error occurred: two budgets; evict Pod shop/web: Internal error occurred: two budgets"
		require.Equal(t, []string{failed}, w.told("node-00", "EvictionFailed"))
		w.locked(func() { w.evictErr = nil })
		advance(2 * time.Minute)
		require.Len(t, w.told("node-00", "DrainWaiting"), 1)
		require.Contains(t, w.told("node-00", "DrainWaiting")[0], "The disruption budget db needs")
		w.protect("db", false)
		advance(5 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A Pod that blocks reboots may come when its Node is about to be cordoned. The drain waits for it, and evicts nothing meanwhile.
func TestABlockingPodThatComesLate(t *testing.T) {
	apps := []string{"migration", "backup"}
	for _, app := range apps {
		t.Run(app, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				for _, each := range apps {
					w.options.BlockingPods = append(w.options.BlockingPods, labels.SelectorFromSet(labels.Set{"app": each}))
				}
				w.addMachines(1)
				w.addPod("web", "node-00")
				w.request("node-00") // first, or the controller may learn of it late
				w.startController(5 * time.Second)
				advance(time.Second)
				w.addPod(app, "node-00")
				advance(5 * time.Minute)
				require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
				require.ElementsMatch(t, []string{app, "web"}, w.pods("node-00"))
				require.Equal(t, []string{"Pod shop/" + app + " blocks the reboot"}, w.told("node-00", "DrainWaiting"))
				w.removePod(app, types.UID(app+"@node-00"))
				advance(2 * time.Minute)
				w.requireDone(1, "node-00")
			})
		})
	}
}

// A DaemonSet's Pod, which a drain leaves alone, may come to a Node that is cordoned, and must not be interrupted either.
func TestABlockingPodOfADaemonSet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		selector, err := labels.Parse("app=firmware")
		require.NoError(t, err)
		w.options.BlockingPods = []labels.Selector{selector}
		w.addMachines(1)
		w.addPod("web", "node-00")
		w.startController(0)
		w.request("node-00")
		advance(time.Second)
		w.create(appsv1.SchemeGroupVersion.WithResource("daemonsets"), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "firmware"}})
		firmware := nodetest.NewPod("firmware", "node-00")
		firmware.OwnerReferences[0].Kind, firmware.OwnerReferences[0].Name = "DaemonSet", "firmware"
		w.create(podResource, firmware)
		advance(5 * time.Minute)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
		w.removePod("firmware", firmware.UID)
		advance(2 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A blocking Pod whose kubelet does not run any more stays Terminating. The reboot repairs that.
func TestABlockingPodThatNeverTerminates(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		selector, err := labels.Parse("app=migration")
		require.NoError(t, err)
		w.options.BlockingPods = []labels.Selector{selector}
		w.addMachines(1)
		w.request("node-00") // first, or the controller may learn of it late
		w.startController(5 * time.Second)
		advance(time.Second)
		migration := nodetest.NewPod("migration", "node-00")
		migration.DeletionTimestamp = new(metav1.Now())
		migration.Finalizers = []string{"example.com/kept"}
		w.create(podResource, migration)
		advance(30 * time.Second)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
		advance(5 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A controller enters a Node in the ledger and stops before it admits the Node. Its successor asks again whether it may.
func TestANodeThatWasEnteredButNotAdmitted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		selector, err := labels.Parse("app=migration")
		require.NoError(t, err)
		w.options.BlockingPods = []labels.Selector{selector}
		w.addMachines(2)
		w.addPod("migration", "node-00")
		w.request(w.names()...)
		w.create(configMapResource, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.options.Ledger},
			Data:       map[string]string{protocol.SlotsKey: fmt.Sprintf("{%q:%q}", "node-00", w.node("node-00").ResourceVersion)},
		})
		w.startController(0)
		advance(time.Hour)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")))
		require.NotEmpty(t, w.told("node-00", "RebootRefused"))
		w.requireDone(1, "node-01") // node-00 does not keep its slot
		w.removePod("migration", "migration@node-00")
		advance(10 * time.Minute)
		w.requireDone(1, w.names()...)
	})
}

// heartbeat changes what a kubelet writes every few minutes.
func heartbeat(node *corev1.Node) {
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
	}
}

// A controller that was allowed more enters Nodes in the ledger and stops. Its successor keeps to its own limit.
func TestMoreNodesWereEnteredThanMayBeUnavailable(t *testing.T) {
	for name, test := range map[string]struct {
		most, entered int
		down          bool // another Node is
	}{
		"the limit is lower now":                 {1, 3, false},
		"another Node has become unready since":  {2, 2, true},
		"every Node that was entered may reboot": {3, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.options.MaxUnavailable, w.most = intstr.FromInt(test.most), test.most
				w.addMachines(4)
				entries := map[string]string{}
				for _, name := range w.names()[:test.entered] {
					w.request(name)
					entries[name] = w.node(name).ResourceVersion
				}
				text, err := json.Marshal(entries)
				require.NoError(t, err)
				w.create(configMapResource, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.options.Ledger}, Data: map[string]string{protocol.SlotsKey: string(text)},
				})
				if test.down {
					w.machines["node-03"].setReady(corev1.ConditionUnknown)
				}
				w.startController(0)
				advance(time.Hour)
				w.requireDone(1, w.names()[:test.entered]...)
			})
		})
	}
}

// A webhook does not let one Node be cordoned. The others have their turn.
func TestANodeThatMustNotBeChanged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(3)
		controller := w.startController(0)
		forbidden := true
		controller.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if name := action.(clienttesting.PatchAction).GetName(); forbidden && name == "node-00" {
				return true, nil, apierrors.NewForbidden(nodeResource.GroupResource(), name, errors.New("hands off"))
			}
			return false, nil, nil
		})
		w.request(w.names()...)
		advance(time.Minute)
		require.Len(t, w.told("node-00", "AdmissionRefused"), 1)
		w.edit("node-00", heartbeat)
		advance(10 * time.Minute)
		w.requireDone(1, "node-01", "node-02")
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")))
		forbidden = false
		w.edit("node-00", heartbeat)
		advance(10 * time.Minute)
		w.requireDone(1, w.names()...)
	})
}

// A controller whose cache is minutes behind still drains a Node that has been rebooted. The Pods that came since stay.
func TestAStaleCacheEvictsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.addPod("before", "node-00")
		w.startController(0)
		w.request("node-00") // first, or the controller may learn of it late
		w.startController(5 * time.Minute)
		advance(4 * time.Minute)
		w.requireDone(1, "node-00")
		w.addPod("after", "node-00")
		evicted := w.evicted()
		advance(10 * time.Minute)
		require.Equal(t, evicted, w.evicted())
		require.Equal(t, []string{"after"}, w.pods("node-00"))
	})
}

// A failure is logged, even if another Node's write was only a Conflict at the same time.
func TestAFailureBesideAConflict(t *testing.T) {
	for _, conflict := range []string{"node-00", "node-01"} {
		inWorld(t, func(t *testing.T, w *world) {
			w.options.MaxUnavailable, w.most = intstr.FromInt32(2), 2
			w.addMachines(2)
			controller := w.startController(0)
			failed := map[string]bool{}
			controller.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
				name := action.(clienttesting.PatchAction).GetName()
				if failed[name] {
					return false, nil, nil
				}
				failed[name] = true
				if name == conflict {
					return true, nil, apierrors.NewConflict(nodeResource.GroupResource(), name, errors.New("changed"))
				}
				return true, nil, apierrors.NewInternalError(errors.New("out of order"))
			})
			w.request(w.names()...)
			advance(10 * time.Minute)
			w.requireDone(1, w.names()...)
			require.Contains(t, strings.Join(controller.errors(), "\n"), "out of order")
		})
	}
}

func TestPause(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(3)
		w.pause(true)
		w.startController(0)
		w.request(w.names()...)
		advance(time.Hour)
		require.Zero(t, w.written())
		w.pause(false)
		advance(10 * time.Second)
		require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-00")))
		w.pause(true)
		advance(time.Hour)
		w.requireDone(1, "node-00")
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-01")))
	})
}

// A14: on a cluster with one Node, the controller must not evict itself: nobody would end the drain.
func TestItsOwnPodIsNotEvicted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.OwnPod = "shop/controller"
		w.addMachines(1)
		w.addPod("controller", "node-00")
		w.addPod("web", "node-00")
		w.startController(0)
		w.request("node-00")
		advance(5 * time.Minute)
		w.requireDone(1, "node-00")
		require.Equal(t, []string{"controller"}, w.pods("node-00"))
	})
}

// A Pod may come to the Node after it was found empty and before the controller reads the Node to approve it: somebody
// uncordons the Node and cordons it again.
func TestAPodThatComesBeforeTheApproval(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.grace = 5 * time.Minute
		w.onGetNode = func() {
			w.onGetNode = nil
			for _, unschedulable := range []bool{false, true} {
				node, err := w.get("node-00")
				assert.NoError(t, err)
				node.Spec.Unschedulable = unschedulable
				assert.NoError(t, w.update(nodeResource, node))
			}
			assert.NoError(t, w.add(podResource, nodetest.NewPod("late", "node-00")))
		}
		w.startController(0)
		w.request("node-00")
		advance(4 * time.Minute)
		require.Nil(t, w.onGetNode)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
		require.Zero(t, w.machines["node-00"].boots())
		advance(4 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A reboot changes nothing that others have written to the Node.
func TestLeavesEverythingElseAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.edit("node-00", func(node *corev1.Node) {
			node.Labels["example.com/pool"] = "web"
			node.Annotations = map[string]string{"example.com/owner": "team-a"}
			node.Finalizers = []string{"example.com/inventory"}
			node.Spec.Taints = []corev1.Taint{{Key: "example.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
			node.Spec.ProviderID = "example://node-00"
		})
		before := w.node("node-00")
		during := 0
		w.onWrite = func(*process) {
			node, err := w.get("node-00")
			assert.NoError(t, err)
			assert.Equal(t, before.Spec.Taints, node.Spec.Taints)
			assert.Equal(t, before.Finalizers, node.Finalizers)
			during++
		}
		w.startController(0)
		w.request("node-00")
		advance(2 * time.Minute)
		require.Equal(t, 1, w.machines["node-00"].boots())
		require.Equal(t, 5, during, "one write of the ledger and four of the Node")
		after := w.node("node-00")
		require.NotEmpty(t, after.Annotations[protocol.LastAttemptAnnotation])
		require.NotEmpty(t, after.Annotations[protocol.RebootedAnnotation])
		delete(after.Annotations, protocol.LastAttemptAnnotation)
		delete(after.Annotations, protocol.RebootedAnnotation)
		after.ResourceVersion = before.ResourceVersion
		require.Equal(t, before, after)
	})
}

// The controller and the agent are ready from the time their caches have synced until they are told to stop.
func TestReadiness(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.addMachine("node-00")
		w.setDown(true)
		controller := w.startController(0)
		m.startAgent()
		processes := []*process{controller, m.agent}
		advance(time.Second)
		for _, p := range processes {
			require.False(t, p.ready(), "%s: the API server does not answer", p.name)
		}
		w.setDown(false)
		advance(time.Minute)
		for _, p := range processes {
			require.True(t, p.ready(), p.name)
			p.stop()
			require.False(t, p.ready(), "%s: it has stopped", p.name)
		}
	})
}

package reboot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics/testutil"

	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/protocol"
)

// pool starts a controller for the Nodes of a pool, with a ledger of its own.
func (w *world) pool(t *testing.T, name, namespace, ledger string, choose func(*Options)) *process {
	before := w.options
	defer func() { w.options = before }()
	selector, err := labels.Parse(name)
	require.NoError(t, err)
	w.options.Selector, w.options.Namespace, w.options.Ledger = selector, namespace, ledger
	if choose != nil {
		choose(&w.options)
	}
	return w.startController(0)
}

func (w *world) label(name, label, value string) {
	w.edit(name, nodetest.Label(label, value))
}

// A18: two controllers, one per pool of Nodes, in one namespace or in two. Each has its own limit, and neither acts on what the
// other has admitted: not even if it evicts Pods that the other leaves alone.
func TestTwoControllersOnePerPool(t *testing.T) {
	for name, second := range map[string][2]string{
		"in one namespace":  {namespace, "batch-ledger"},
		"in two namespaces": {"batch", "ledger"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.most = 2 // one of each pool
				w.addMachines(4)
				w.label("node-00", "pool", "web")
				w.label("node-01", "pool", "web")
				w.label("node-02", "pool", "batch")
				w.label("node-03", "pool", "batch")
				bare := nodetest.NewPod("bare", "node-00")
				bare.OwnerReferences = nil
				w.create(podResource, bare)
				w.pool(t, "pool=web", namespace, "ledger", func(o *Options) { o.DrainTimeout = time.Hour })
				w.pool(t, "pool=batch", second[0], second[1], func(o *Options) { o.Rules = drain.Rules{DeleteUnmanagedPods: true} })
				w.request(w.names()...)
				advance(30 * time.Minute)

				w.requireDone(1, "node-02", "node-03")
				require.Equal(t, []string{"bare"}, w.pods("node-00"), "the other controller's --delete-unmanaged-pods is not for this Node")
				node := w.node("node-00")
				require.Equal(t, protocol.Draining, protocol.PhaseOf(node), "the other controller's --drain-timeout is not for this Node")
				require.Equal(t, namespace+"/ledger", node.Annotations[protocol.AdmittedByAnnotation])
				require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-01")), "each has its own limit")
				w.removePod("bare", bare.UID)
				advance(10 * time.Minute)
				w.requireDone(1, w.names()...)
				require.Empty(t, w.told("node-00", "AdmittedElsewhere"), "no Node is selected by both")
				require.Empty(t, w.told("node-00", "RebootRefused"), "that the other one does not select it is no news")

				// The second time is like the first one.
				w.request("node-00", "node-02")
				advance(10 * time.Minute)
				w.requireDone(2, "node-00", "node-02")
			})
		})
	}
}

// Two controllers that select the same Nodes say so, and still do not act on what the other has admitted.
func TestTwoControllersThatSelectTheSameNodes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(2)
		w.addPod("db", "node-00")
		w.protect("db", true)
		w.pool(t, "", namespace, "ledger", func(o *Options) { o.DrainTimeout = time.Hour })
		advance(time.Second)
		w.request("node-00")
		advance(time.Second)
		w.pool(t, "", "elsewhere", "ledger", nil) // gives up a drain after 10 minutes
		advance(30 * time.Minute)
		node := w.node("node-00")
		require.Equal(t, protocol.Draining, protocol.PhaseOf(node))
		require.Equal(t, namespace+"/ledger", node.Annotations[protocol.AdmittedByAnnotation])
		require.Equal(t, []string{"The controller of ledger reboot-operator/ledger has admitted this Node, which --node-selector of the controller of ledger elsewhere/ledger selects, too; " +
			`let each Node be selected by one controller; if that one is gone, "kubectl reboot why" says how to hand the Node over`}, w.told("node-00", "AdmittedElsewhere"), "once")
		w.request("node-01")
		advance(10 * time.Minute)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-01")), "the Node of the other one is unavailable")
		w.protect("db", false)
		advance(20 * time.Minute)
		w.requireDone(1, w.names()...)
	})
}

// A Node whose controller is gone is handed over as "kubectl reboot why" says.
func TestANodeIsHandedOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.addPod("db", "node-00")
		w.protect("db", true)
		gone := w.pool(t, "", namespace, "renamed", nil)
		w.request("node-00")
		advance(time.Minute)
		gone.stop()
		w.protect("db", false)
		w.startController(0)
		advance(time.Hour)
		require.Equal(t, protocol.Draining, protocol.PhaseOf(w.node("node-00")))
		w.annotate("node-00", protocol.AdmittedByAnnotation, namespace+"/ledger")
		advance(10 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// Each of two controllers counts the reboots of its own Nodes.
func TestMetricsOfTwoControllers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.most = 2
		w.addMachines(3)
		w.label("node-00", "pool", "web")
		web := w.pool(t, "pool=web", namespace, "ledger", nil)
		batch := w.pool(t, "pool!=web", namespace, "batch-ledger", nil)
		w.request(w.names()...)
		advance(20 * time.Minute)
		w.requireDone(1, w.names()...)
		for p, want := range map[*process]string{web: "1", batch: "2"} {
			text := "# HELP reboot_completed_total Number of reboots that a new boot ID has proved.\n# TYPE reboot_completed_total counter\nreboot_completed_total " + want + "\n"
			require.NoError(t, testutil.CollectAndCompare(p.collector, strings.NewReader(text), "reboot_completed_total"))
			nodes := fmt.Sprintf(`reboot_nodes{phase="Idle"} %s`, want)
			require.NoError(t, testutil.CollectAndCompare(p.collector, strings.NewReader("# HELP reboot_nodes Number of Nodes by phase.\n# TYPE reboot_nodes gauge\n"+
				`reboot_nodes{phase="Approved"} 0`+"\n"+`reboot_nodes{phase="Cancelled"} 0`+"\n"+`reboot_nodes{phase="Draining"} 0`+"\n"+nodes+"\n"+
				`reboot_nodes{phase="InProgress"} 0`+"\n"+`reboot_nodes{phase="Needed"} 0`+"\n"), "reboot_nodes"))
		}
	})
}

// Nodes that the version before this annotation has admitted are finished by the controller that has entered them in its ledger,
// or that selects them, whatever their phase is.
func TestFinishesWhatAnEarlierVersionAdmitted(t *testing.T) {
	for name, phase := range map[string]func(*corev1.Node){
		"draining":    nodetest.Draining,
		"approved":    nodetest.Approved,
		"in progress": nodetest.All(nodetest.InProgress, nodetest.Annotation(protocol.InProgressAnnotation, "boot-0")),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addMachines(2)
				now := protocol.FormatTime(time.Now())
				w.edit("node-00", func(node *corev1.Node) {
					nodetest.All(phase, nodetest.Annotation(protocol.AdmittedAnnotation, now), nodetest.Annotation(protocol.SinceAnnotation, now),
						nodetest.Annotation(protocol.CordonedAnnotation, "true"))(node)
					node.Spec.Unschedulable = true
				})
				w.pool(t, "pool=none", "elsewhere", "ledger", nil) // does not select it
				w.startController(0)
				w.request("node-01")
				advance(10 * time.Minute)
				w.requireDone(1, "node-00", "node-01")
			})
		})
	}
}

// A controller of an earlier version leaves the annotation behind that says whose the Node was. It means nothing then.
func TestAnAnnotationOfALaterVersion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.annotate("node-00", protocol.AdmittedByAnnotation, "gone/ledger")
		w.startController(0)
		w.request("node-00")
		advance(10 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A21: a Node on which no agent runs is not admitted: nobody would reboot it. It does not keep the others waiting.
func TestANodeWithoutAnAgent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		selector, err := labels.Parse("app=agent")
		require.NoError(t, err)
		w.options.AgentPods, w.options.AgentNamespace = selector, namespace
		agentOn := func(node string, change func(*corev1.Pod)) {
			pod := nodetest.NewPod("agent", node)
			pod.Namespace, pod.Name = namespace, "agent-"+node
			pod.OwnerReferences[0].Kind = "DaemonSet"
			change(pod)
			w.create(podResource, pod)
		}
		w.create(appsv1.SchemeGroupVersion.WithResource("daemonsets"), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}})
		w.addMachines(4)
		agentOn("node-01", func(*corev1.Pod) {})
		agentOn("node-02", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending })
		agentOn("node-03", func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
		})
		w.addPod("agent", "node-00") // in another namespace
		w.startController(0)
		w.request(w.names()...)
		advance(10 * time.Minute)
		w.requireDone(1, "node-01")
		for _, name := range []string{"node-00", "node-02", "node-03"} {
			require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node(name)), name)
			require.False(t, w.node(name).Spec.Unschedulable, "%s was cordoned for nothing", name)
			require.Equal(t, []string{"Not rebooting now: no agent is running on it, so nobody would reboot it after the drain"}, w.told(name, "RebootRefused"), name)
		}
		agentOn("node-00", func(*corev1.Pod) {})
		advance(5 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// A Node that first has no agent, and is then blocked by a Pod, is told both: each reason once for each attempt.
func TestASecondReason(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		selector, err := labels.Parse("app=agent")
		require.NoError(t, err)
		w.options.AgentPods, w.options.AgentNamespace = selector, namespace
		blocking, err := labels.Parse("app=migration")
		require.NoError(t, err)
		w.options.BlockingPods = []labels.Selector{blocking}
		w.create(appsv1.SchemeGroupVersion.WithResource("daemonsets"), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}})
		w.addMachines(1)
		w.startController(0)
		w.request("node-00")
		advance(10 * time.Minute)
		const noAgent = "Not rebooting now: no agent is running on it, so nobody would reboot it after the drain"
		require.Equal(t, []string{noAgent}, w.told("node-00", "RebootRefused"))
		w.addPod("migration", "node-00")
		advance(time.Second) // until the controller has seen it
		agent := nodetest.NewPod("agent", "node-00")
		agent.Namespace = namespace
		agent.OwnerReferences[0].Kind = "DaemonSet"
		w.create(podResource, agent)
		advance(10 * time.Minute)
		require.Equal(t, []string{noAgent, "Not rebooting now: Pod shop/migration blocks it"}, w.told("node-00", "RebootRefused"))
		w.removePod("migration", "migration@node-00")
		advance(5 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// After a reboot, the Node keeps its slot for a while; whoever controls then.
func TestPauseAfterReboot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.PauseAfterReboot = 10 * time.Minute
		w.addMachines(3)
		first := w.startController(0)
		w.request(w.names()...)
		advance(5 * time.Minute)
		w.requireDone(1, "node-00")
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-01")))
		first.stop()
		w.startController(0)
		advance(4 * time.Minute)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-01")), "the pause outlives the controller")
		advance(3 * time.Minute)
		w.requireDone(1, "node-01")
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-02")))
		w.request("node-00") // the second time
		advance(11 * time.Minute)
		w.requireDone(1, "node-02")
		advance(12 * time.Minute)
		w.requireDone(2, "node-00")
	})
}

// Several programs pause independently of each other, and of the switch that has no name.
func TestNamedPauses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		w.startController(0)
		advance(time.Second)
		w.setLedger("paused.ceph", "HEALTH_WARN")
		w.setLedger("paused.alerts", "2 alerts are firing")
		w.request("node-00")
		advance(10 * time.Minute)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")))
		w.setLedger("paused.ceph", "")
		advance(time.Minute)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")), "an empty value pauses, too")
		w.setLedger("paused.ceph", "false")
		advance(time.Minute)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-00")), "alerts still fire")
		w.setLedger("paused.alerts", "false")
		advance(5 * time.Minute)
		w.requireDone(1, "node-00")
	})
}

// "kubectl describe node" shows what a drain waits for today, although an Event's note is no part of its identity.
func TestEachReasonOfAWaitingDrainIsTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.DrainTimeout = 10 * time.Hour
		w.addMachines(1)
		w.addPod("db", "node-00")
		w.addPod("queue", "node-00")
		w.protect("db", true)
		w.protect("queue", true)
		w.startController(0)
		w.request("node-00")
		advance(time.Minute)
		db, queue := "Pod shop/db cannot be evicted: The disruption budget db needs 1 healthy pods and has 1 currently",
			"Pod shop/queue cannot be evicted: The disruption budget queue needs 1 healthy pods and has 1 currently"
		require.ElementsMatch(t, []string{db, queue}, w.told("node-00", "DrainWaiting"))
		w.protect("db", false)
		advance(time.Minute)
		require.ElementsMatch(t, []string{db, queue}, w.told("node-00", "DrainWaiting"), "nothing new")
		late := nodetest.NewPod("late", "node-00")
		late.OwnerReferences = nil
		w.create(podResource, late)
		advance(time.Minute)
		require.ElementsMatch(t, []string{db, queue,
			"no controller owns Pods that would be evicted, so nobody would create them again: shop/late; delete them, or run the controller with --delete-unmanaged-pods"},
			w.told("node-00", "DrainWaiting"))
	})
}

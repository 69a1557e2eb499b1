package test

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/harness/machine"
	"example.com/controllers/reboot/protocol"
)

// A1: never more Nodes are unavailable than allowed, and no Pod of the Deployment is lost.
func TestRollingReboot(t *testing.T) {
	w := newWorld(t, 6)
	nodes := names(6)
	w.reboots("", nodes...)
	w.deploy(6, 5)
	w.startAgents()
	controller := w.startController("--max-unavailable=34%", "--workers=8") // 2.04, rounded up: 3
	w.request(nodes...)
	w.rebooted(1, nodes...)
	require.LessOrEqual(t, w.mostAdmitted(), 3)
	require.Contains(t, w.told("node-0", "Rebooted"), "the boot ID was ")
	require.NotContains(t, controller.Log(), "\nE")
	controller.Signal(syscall.SIGTERM)
	require.NoError(t, controller.Wait())
}

// A11: two controllers that both believe that they lead.
func TestTwoLeaders(t *testing.T) {
	w := newWorld(t, 6)
	nodes := names(6)
	w.reboots("", nodes...)
	w.startAgents()
	w.startController("--max-unavailable=2", "--lease-duration=0")
	w.startController("--max-unavailable=2", "--lease-duration=0")
	w.request(nodes...)
	w.rebooted(1, nodes...)
	require.LessOrEqual(t, w.mostAdmitted(), 2)
}

// A14: the leader goes, and the next one goes on where it was.
func TestTheNextLeaderGoesOn(t *testing.T) {
	w := newWorld(t, 3)
	nodes := names(3)
	w.reboots("", nodes...)
	w.startAgents()
	first := w.startController("--own-node=node-0")
	second := w.startStandby("--own-node=node-1")
	w.request(nodes...)
	w.reaches("node-1", protocol.InProgress) // not node-0, which would be the first otherwise
	first.Signal(syscall.SIGTERM)
	require.NoError(t, first.Wait())
	second.AwaitLog("Caches synced")
	w.rebooted(1, nodes...)
	require.Equal(t, 1, w.mostAdmitted())
}

// A3, A4, A5: machines whose reboot is not as it should be.
func TestOddReboots(t *testing.T) {
	w := newWorld(t, 3)
	w.reboots(machine.Ignore, "node-0")
	w.reboots(machine.Fast, "node-1")
	w.reboots(machine.Hang, "node-2")
	w.startAgents()
	w.startController("--reboot-timeout=2s")

	w.request("node-1")
	w.rebooted(1, "node-1")

	w.request("node-0")
	require.Equal(t, "The machine has not started with another boot ID for 2s; the Node keeps its slot", w.told("node-0", "RebootTimeout"))
	require.Equal(t, protocol.InProgress, protocol.PhaseOf(w.node("node-0")))
	require.True(t, w.node("node-0").Spec.Unschedulable)
	w.reboots("", "node-0")
	w.rebooted(1, "node-0") // it is asked again

	w.request("node-2")
	w.becomes("node-2", protocol.InProgress)
	require.NoError(t, machine.Remove(t.Context(), w.Client, "node-2"))
	w.request("node-0")
	w.rebooted(2, "node-0")
}

// A6, A7: somebody else cordons and uncordons.
func TestOtherPeoplesCordons(t *testing.T) {
	w := newWorld(t, 2)
	nodes := names(2)
	w.reboots("", nodes...)
	cordon := func(node string, unschedulable bool) {
		_, err := w.Client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	cordon("node-0", true)
	w.startController("--max-unavailable=2")
	w.request(nodes...)
	w.becomes("node-0", protocol.Approved) // there are no agents yet
	w.becomes("node-1", protocol.Approved)
	cordon("node-1", false)
	require.Contains(t, w.told("node-1", "CordonedAgain"), "Somebody uncordoned the Node")
	w.startAgents()
	w.rebooted(1, "node-1")
	w.Eventually("node-0", func(context.Context) string {
		if node := w.node("node-0"); protocol.PhaseOf(node) != protocol.Idle || machine.Boots(node) != 2 {
			return string(protocol.PhaseOf(node))
		}
		return ""
	})
	require.True(t, w.node("node-0").Spec.Unschedulable, "somebody else cordoned it")
}

// A8: a PodDisruptionBudget that allows no eviction.
func TestAPodDisruptionBudget(t *testing.T) {
	w := newWorld(t, 1)
	w.reboots("", "node-0")
	w.deploy(1, 1)
	w.startAgents()
	w.startController("--drain-timeout=8s", "--retry-interval=1s")
	w.request("node-0")
	require.Regexp(t, `^Pod default/web-.* cannot be evicted: The disruption budget web needs 1 healthy pods and has 1 currently$`, w.told("node-0", "DrainWaiting"))
	require.Regexp(t, `Not rebooted; next attempt in 1s: the drain took longer than 8s: Pod default/web-.* The disruption budget web`, w.told("node-0", "DrainTimeout"))
	require.NoError(t, w.Client.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.rebooted(1, "node-0")
	require.Empty(t, w.node("node-0").Annotations[protocol.FailuresAnnotation])
}

// A10: a Node that nobody hears from counts as unavailable; the reboot that it needs itself does not wait for it.
func TestNotReadyNodes(t *testing.T) {
	w := newWorld(t, 2)
	w.reboots("", names(2)...)
	require.NoError(t, machine.SetReady(t.Context(), w.Client, "node-0", false))
	w.Eventually("node-0", func(context.Context) string {
		if isReady(w.node("node-0")) {
			return "it is ready"
		}
		return ""
	})
	w.startAgents()
	w.startController()
	w.request("node-1", "node-0")
	w.becomes("node-0", protocol.Idle)
	require.Equal(t, protocol.Needed, protocol.PhaseOf(w.node("node-1")))
	require.NoError(t, machine.SetReady(t.Context(), w.Client, "node-0", true))
	w.rebooted(1, "node-0", "node-1")
}

// A17: the request is withdrawn after the drain.
func TestCancel(t *testing.T) {
	w := newWorld(t, 1)
	w.startController()
	w.request("node-0")
	w.becomes("node-0", protocol.Approved)
	w.annotate("node-0", protocol.NowAnnotation, nil)
	w.becomes("node-0", protocol.Idle)
	require.False(t, w.node("node-0").Spec.Unschedulable)
	w.startAgents()
	w.request("node-0")
	w.rebooted(1, "node-0")
}

// Reboots are paused without a restart.
func TestPause(t *testing.T) {
	w := newWorld(t, 2)
	w.reboots("", names(2)...)
	w.startAgents()
	_, err := w.Client.CoreV1().ConfigMaps(w.Namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "reboot-ledger"}, Data: map[string]string{"paused": "true"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.startController()
	w.request(names(2)...)
	// Whatever the controller does of itself, it does before this.
	w.Kubectl("annotate", "node", "node-0", "example.com/seen=yes")
	require.Zero(t, w.mostAdmitted())
	w.Kubectl("patch", "configmap", "reboot-ledger", "--type=merge", "--patch", `{"data":{"paused":"false"}}`)
	w.rebooted(1, names(2)...)
	require.Equal(t, 1, w.mostAdmitted())
}

// Pods of any of several selectors forbid the reboot of their Node, with the rights that the manifests grant. Twice: a Node that was
// rebooted may get such a Pod again.
func TestBlockingPods(t *testing.T) {
	w := newWorld(t, 2)
	w.reboots("", names(2)...)
	w.startAgents()
	// Two may be unavailable: if the watch of Pods is late, node-0 is admitted, and its drain waits.
	w.startController("--max-unavailable=2", "--blocking-pods=app=db", "--blocking-pods=app=job", "--delete-unmanaged-pods")
	for i, app := range []string{"db", "job"} {
		_, err := w.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: app, Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{NodeName: "node-0", Containers: []corev1.Container{{Name: app, Image: app}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		w.request(names(2)...)
		w.rebooted(i+1, "node-1")
		blocks, err := w.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), app, metav1.GetOptions{})
		require.NoError(t, err)
		require.Nil(t, blocks.DeletionTimestamp, "it is not evicted")
		require.Equal(t, i, machine.Reboots(w.node("node-0")))
		w.Kubectl("delete", "pod", app, "--namespace=default", "--wait=false")
		w.rebooted(i+1, "node-0")
	}
}

// A controller that waits for the Lease does not say that its limits are those that apply; when it leads, it does. Twice, because the
// second leader has waited itself.
func TestAStandbyPublishesNothing(t *testing.T) {
	w := newWorld(t, 1)
	published := func() string {
		ledger, err := w.Client.CoreV1().ConfigMaps(w.Namespace).Get(t.Context(), "reboot-ledger", metav1.GetOptions{})
		require.NoError(t, err)
		return protocol.SettingsOf(ledger).Flags["max-unavailable"]
	}
	leader := w.startController("--max-unavailable=1")
	require.Equal(t, "1", published())
	for _, limit := range []string{"2", "3"} {
		leads := published()
		standby := w.startStandby("--max-unavailable=" + limit)
		standby.AwaitLog("Attempting to acquire leader lease")
		require.Equal(t, leads, published())
		standby.AwaitLog("Waiting for a leader with other flags")
		leader.Signal(syscall.SIGTERM)
		require.NoError(t, leader.Wait())
		standby.AwaitLog("Caches synced")
		require.Equal(t, limit, published())
		leader = standby
	}
}

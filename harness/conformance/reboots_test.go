package conformance_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/machine"
)

// observeUntil watches a Node until done returns true, and returns how its machine looked on the way: "Ready=True on
// old-boot-id", without repetitions. It calls begin when it has seen the Node for the first time.
func observeUntil(t *testing.T, client kubernetes.Interface, first *corev1.Node, begin func(), done func(*corev1.Node) bool) (states []string, last *corev1.Node) {
	t.Helper()
	nodes := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll,
		fields.OneTermEqualSelector(metav1.ObjectNameField, first.Name))
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	begun := false
	_, err := watchtools.UntilWithSync(ctx, nodes, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		last = event.Object.(*corev1.Node)
		bootID := "old-boot-id"
		if last.Status.NodeInfo.BootID != first.Status.NodeInfo.BootID {
			bootID = "new-boot-id"
		}
		state := fmt.Sprintf("Ready=%s %s %s", readiness(last), last.Labels[machine.PowerLabel], bootID)
		if len(states) == 0 || states[len(states)-1] != state {
			states = append(states, state)
		}
		if !begun {
			begun = true
			begin()
		}
		return done(last), nil
	})
	require.NoError(t, err, "the machine's states: %v", states)
	return states, last
}

func TestReboot(t *testing.T) {
	t.Parallel()
	for behavior, want := range map[machine.Behavior][]string{
		machine.Normal: {
			"Ready=True on old-boot-id", "Ready=False on old-boot-id", "Ready=False off old-boot-id",
			"Ready=False off new-boot-id", "Ready=False on new-boot-id", "Ready=True on new-boot-id",
		},
		machine.SameBootID: {
			"Ready=True on old-boot-id", "Ready=False on old-boot-id", "Ready=False off old-boot-id",
			"Ready=False on old-boot-id", "Ready=True on old-boot-id",
		},
		machine.PowerCut: {
			"Ready=True on old-boot-id", "Ready=True off old-boot-id", "Ready=True off new-boot-id", "Ready=True on new-boot-id",
		},
		machine.Fast: {
			"Ready=True on old-boot-id", "Ready=True off old-boot-id", "Ready=True off new-boot-id", "Ready=True on new-boot-id",
		},
	} {
		t.Run(string(behavior), func(t *testing.T) {
			t.Parallel()
			e := newTestEnv(t)
			first := e.waitForReadyNode(t, e.addMachine(t))
			require.Equal(t, 1, machine.Boots(first))
			states, last := observeUntil(t, e.client, first, func() {
				for range 2 { // the second one does nothing
					require.NoError(t, machine.Reboot(t.Context(), e.client, first.Name, machine.RebootOptions{Behavior: behavior, BootTime: time.Second}))
				}
			}, func(node *corev1.Node) bool {
				return machine.Boots(node) > 1 && readiness(node) == corev1.ConditionTrue
			})
			require.Equal(t, want, states)
			require.Equal(t, 2, machine.Boots(last))
			require.Equal(t, 1, machine.Reboots(last))
			require.Equal(t, first.UID, last.UID)
			require.Equal(t, first.Status.NodeInfo.MachineID, last.Status.NodeInfo.MachineID)
			require.NotContains(t, last.Annotations, machine.RebootingAnnotation)
			e.createPod(t, "bound", e.ownPodSpec())
		})
	}
}

func TestMachineThatIgnoresReboots(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	first := e.waitForReadyNode(t, e.addMachine(t))
	require.NoError(t, machine.SetReboots(t.Context(), e.client, first.Name, machine.RebootOptions{Behavior: machine.Ignore}))
	require.NoError(t, machine.Reboot(t.Context(), e.client, first.Name, machine.RebootOptions{}))
	node, err := e.client.CoreV1().Nodes().Get(t.Context(), first.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, node.Annotations, machine.RebootingAnnotation)
	require.Equal(t, 1, machine.Boots(node))
	require.Zero(t, machine.Reboots(node))

	// A call that names a behavior overrides the annotation.
	require.NoError(t, machine.Reboot(t.Context(), e.client, first.Name, machine.RebootOptions{Behavior: machine.Fast, Spontaneous: true}))
	node = waitUntil(t, e.client.CoreV1().Nodes(), first.Name, "booted again", func(node *corev1.Node) bool { return machine.Boots(node) == 2 })
	require.Zero(t, machine.Reboots(node), "nobody asked for it")
}

func TestMachineThatHangsWhileItReboots(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	nodes := e.client.CoreV1().Nodes()
	first := e.waitForReadyNode(t, e.addMachine(t))
	options := machine.RebootOptions{Behavior: machine.Hang, BootTime: time.Millisecond}
	require.NoError(t, machine.SetReboots(t.Context(), e.client, first.Name, options))
	require.NoError(t, machine.Reboot(t.Context(), e.client, first.Name, machine.RebootOptions{}))
	off := waitUntil(t, nodes, first.Name, "off and not ready", func(node *corev1.Node) bool {
		return !machine.IsOn(node) && readiness(node) != corev1.ConditionTrue
	})
	require.Equal(t, first.Status.NodeInfo.BootID, off.Status.NodeInfo.BootID)
	require.NoError(t, machine.Reboot(t.Context(), e.client, first.Name, machine.RebootOptions{Behavior: machine.Fast}))
	reboot, err := machine.RebootOf(off)
	require.NoError(t, err)
	require.Equal(t, machine.Hang, reboot.Behavior)

	require.NoError(t, machine.SetPower(t.Context(), e.client, first.Name, true))
	last := e.waitForReadyNode(t, first.Name)
	require.Equal(t, 2, machine.Boots(last))
	require.NotEqual(t, first.Status.NodeInfo.BootID, last.Status.NodeInfo.BootID)
}

func TestMachineThatIsSwitchedOnHasNewBootID(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	first := e.waitForReadyNode(t, e.addMachine(t))
	for range 2 { // the second time, it is off, or on, already
		require.NoError(t, machine.SetPower(t.Context(), e.client, first.Name, false))
	}
	err := machine.Reboot(t.Context(), e.client, first.Name, machine.RebootOptions{})
	require.ErrorContains(t, err, "node "+first.Name+": it is switched off, so it cannot reboot")
	for range 2 {
		require.NoError(t, machine.SetPower(t.Context(), e.client, first.Name, true))
	}
	last := e.waitForReadyNode(t, first.Name)
	require.Equal(t, 2, machine.Boots(last))
	require.NotEqual(t, first.Status.NodeInfo.BootID, last.Status.NodeInfo.BootID)
}

func TestMachineThatIsSwitchedOffWhileItRebootsStaysOff(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	name := e.addMachine(t)
	require.NoError(t, machine.Reboot(t.Context(), e.client, name, machine.RebootOptions{BootTime: time.Hour}))
	require.NoError(t, machine.SetPower(t.Context(), e.client, name, false))
	node, err := e.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.False(t, machine.IsOn(node))
	require.NotContains(t, node.Annotations, machine.RebootingAnnotation)
}

func TestRebootsThatAreImpossible(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	name := e.addMachine(t)
	for want, options := range map[string]machine.RebootOptions{
		`a reboot cannot be "slow"; it is one of ["normal" "hang" "same-boot-id" "fast" "power-cut" "ignore"]`: {Behavior: "slow"},
		"the boot time is -1s; it must not be negative":                                                        {BootTime: -time.Second},
	} {
		require.ErrorContains(t, machine.Reboot(t.Context(), e.client, name, options), "change node "+name+": "+want)
	}
	require.ErrorContains(t, machine.SetReboots(t.Context(), e.client, name, machine.RebootOptions{Behavior: "slow"}), `a reboot cannot be "slow"`)
}

// A reboot is written on the Node, so the control plane that carries it out may crash on the way.
func TestRebootContinuesAfterCrashOfControlPlane(t *testing.T) {
	t.Parallel()
	options := cluster.Options{Nodes: 1, Progress: os.Stderr}
	c, err := cluster.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	client, err := c.Client()
	require.NoError(t, err)
	nodes, name := client.CoreV1().Nodes(), machine.Name(0)
	require.NoError(t, machine.Reboot(t.Context(), client, name, machine.RebootOptions{BootTime: 10 * time.Second}))
	off := waitUntil(t, nodes, name, "off", func(node *corev1.Node) bool { return !machine.IsOn(node) })
	reboot, err := machine.RebootOf(off)
	require.NoError(t, err)
	require.NoError(t, c.Crash(t.Context(), options))
	on := waitUntil(t, nodes, name, "on again and ready", func(node *corev1.Node) bool {
		return machine.IsOn(node) && readiness(node) == corev1.ConditionTrue
	})
	require.Equal(t, 2, machine.Boots(on))
	require.Equal(t, reboot.BootID, on.Status.NodeInfo.BootID)
}

package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/suite"
)

// readiness returns the status of a Node's Ready condition, or "" if it has none.
func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

// hasTaints reports whether a Node has taints with that key and both effects, NoSchedule and NoExecute.
func hasTaints(node *corev1.Node, key string) bool {
	effects := map[corev1.TaintEffect]bool{}
	for _, taint := range node.Spec.Taints {
		if taint.Key == key {
			effects[taint.Effect] = true
		}
	}
	return effects[corev1.TaintEffectNoSchedule] && effects[corev1.TaintEffectNoExecute]
}

// waitForReadyNode waits until a Node is Ready and has no taint except the test's own.
func (e *testEnv) waitForReadyNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	return waitUntil(t, e.client.CoreV1().Nodes(), name, "Ready", func(node *corev1.Node) bool {
		for _, taint := range node.Spec.Taints {
			if taint.Key != ownKey {
				return false
			}
		}
		return readiness(node) == corev1.ConditionTrue
	})
}

func TestAddedMachineBecomesReady(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	name := e.namespace + "-added"
	require.NoError(t, machine.Add(t.Context(), e.client, name))
	e.cleanup(t, func(ctx context.Context) error { return e.removeMachine(ctx, name) })
	// A new Node has the not-ready taint, so no Pod of another test has been scheduled there yet.
	patch, err := json.Marshal(corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{e.ownTaint()}}})
	require.NoError(t, err)
	_, err = e.client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	node := e.waitForReadyNode(t, name)
	require.Equal(t, e.cluster.Version, node.Status.NodeInfo.KubeletVersion)
	require.NotEmpty(t, node.Status.NodeInfo.BootID)
	require.Equal(t, "4", node.Status.Allocatable.Cpu().String())
	lease := waitForCreation(t, e.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), name)
	require.Equal(t, name, lease.OwnerReferences[0].Name)

	err = machine.Add(t.Context(), e.client, name)
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	require.ErrorContains(t, err, "add node "+name)
}

func TestRemovedMachineCanBeAddedAgain(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	name := e.addMachine(t)
	first := e.waitForReadyNode(t, name)
	require.NoError(t, machine.Remove(t.Context(), e.client, name))
	waitForDeletion(t, e.client.CoreV1().Nodes(), name)

	node := machine.Node(name, e.cluster.Version)
	node.Labels[ownKey] = e.namespace
	node.Spec.Taints = first.Spec.Taints
	_, err := e.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	second := e.waitForReadyNode(t, name)
	require.NotEqual(t, first.UID, second.UID)
	require.NotEqual(t, first.Status.NodeInfo.BootID, second.Status.NodeInfo.BootID)
	require.NotEqual(t, first.Status.NodeInfo.MachineID, second.Status.NodeInfo.MachineID)
	require.Equal(t, 1, machine.Boots(second))
	waitUntil(t, e.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), name, "owned by the new Node", func(lease *coordinationv1.Lease) bool {
		return len(lease.OwnerReferences) == 1 && lease.OwnerReferences[0].UID == second.UID
	})
	e.createPod(t, "bound", e.ownPodSpec())
}

func TestMachineThatIsNotReadyIsTainted(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	name := e.addMachine(t)
	e.createPod(t, "bound", e.ownPodSpec())
	nodes, pods := e.client.CoreV1().Nodes(), e.client.CoreV1().Pods(e.namespace)

	require.NoError(t, machine.SetReady(t.Context(), e.client, name, false))
	waitUntil(t, nodes, name, "not ready and tainted", func(node *corev1.Node) bool {
		return readiness(node) == corev1.ConditionFalse && hasTaints(node, corev1.TaintNodeNotReady)
	})

	require.NoError(t, machine.SetReady(t.Context(), e.client, name, true))
	e.waitForReadyNode(t, name)
	waitUntil(t, pods, "bound", "Ready again", podReady)
}

// The taint eviction controller deletes Pods whose toleration has expired.
func TestPodsAreEvictedFromMachineThatIsNotReady(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	name := e.addMachine(t)
	spec := e.ownPodSpec()
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
		Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64),
	})
	e.createPod(t, "bound", spec)
	require.NoError(t, machine.SetReady(t.Context(), e.client, name, false))
	waitForDeletion(t, e.client.CoreV1().Pods(e.namespace), "bound")
}

func TestPoweredOffMachineBecomesUnreachable(t *testing.T) {
	suite.Long(t, "takes a minute: the machine's Lease has to expire")
	t.Parallel()
	e := newTestEnv(t)
	name := e.addMachine(t)
	e.createPod(t, "stays", e.ownPodSpec())
	e.createPod(t, "deleted", e.ownPodSpec())
	nodes, pods := e.client.CoreV1().Nodes(), e.client.CoreV1().Pods(e.namespace)

	require.NoError(t, machine.SetPower(t.Context(), e.client, name, false))
	waitUntil(t, nodes, name, "Unknown and tainted", func(node *corev1.Node) bool {
		return readiness(node) == corev1.ConditionUnknown && hasTaints(node, corev1.TaintNodeUnreachable)
	})
	waitUntil(t, pods, "stays", "Running but not Ready", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && !podReady(pod)
	})
	// No kubelet reports that the containers of a deleted Pod have terminated, so the Pod remains.
	require.NoError(t, pods.Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
	deleted, err := pods.Get(t.Context(), "deleted", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, deleted.DeletionTimestamp)

	require.NoError(t, machine.SetPower(t.Context(), e.client, name, true))
	e.waitForReadyNode(t, name)
	waitForDeletion(t, pods, "deleted")
	waitUntil(t, pods, "stays", "Ready again", podReady)
}

func TestPodsOfRemovedMachineAreGarbageCollected(t *testing.T) {
	suite.Long(t, "takes a minute: the Pod garbage collector runs every 20 s, and gives a Node 40 s to come back")
	t.Parallel()
	e := newTestEnv(t)
	name := e.addMachine(t)
	e.createPod(t, "bound", e.ownPodSpec())
	require.NoError(t, machine.Remove(t.Context(), e.client, name))
	waitForDeletion(t, e.client.CoreV1().Nodes(), name)
	waitForDeletion(t, e.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), name)
	waitForDeletion(t, e.client.CoreV1().Pods(e.namespace), "bound")
}

// A Node without the label of a simulated machine may be a real one.
func TestNodesThatAreNotMachinesAreNotChanged(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	nodes := e.client.CoreV1().Nodes()
	name := e.namespace + "-real"
	_, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	e.cleanup(t, func(ctx context.Context) error { return nodes.Delete(ctx, name, metav1.DeleteOptions{}) })

	type operation = func(context.Context, kubernetes.Interface, string) error
	for operationName, run := range map[string]operation{
		"Remove": machine.Remove,
		"SetReady": func(ctx context.Context, client kubernetes.Interface, name string) error {
			return machine.SetReady(ctx, client, name, false)
		},
		"SetPower": func(ctx context.Context, client kubernetes.Interface, name string) error {
			return machine.SetPower(ctx, client, name, false)
		},
		"Reboot": func(ctx context.Context, client kubernetes.Interface, name string) error {
			return machine.Reboot(ctx, client, name, machine.RebootOptions{})
		},
		"SetReboots": func(ctx context.Context, client kubernetes.Interface, name string) error {
			return machine.SetReboots(ctx, client, name, machine.RebootOptions{Behavior: machine.Hang})
		},
	} {
		err := run(t.Context(), e.client, name)
		require.ErrorContains(t, err, fmt.Sprintf("node %s: it is not a simulated machine", name), operationName)
		err = run(t.Context(), e.client, name+"-absent")
		require.True(t, apierrors.IsNotFound(err), "%s of a Node that does not exist: %v", operationName, err)
	}
	node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, node.DeletionTimestamp)
	require.NotContains(t, node.Labels, machine.PowerLabel)
	require.NotContains(t, node.Annotations, machine.ReadyAnnotation)
	require.NotContains(t, node.Annotations, machine.RebootAnnotation)
	require.NotContains(t, node.Annotations, machine.RebootingAnnotation)
}

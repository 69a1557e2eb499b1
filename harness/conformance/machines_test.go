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
)

// readiness returns the status of a Node's Ready condition, "" if it has none.
func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

// hasTaints says whether a Node has all the taints of that key that evict its Pods and keep others off.
func hasTaints(node *corev1.Node, key string) bool {
	effects := map[corev1.TaintEffect]bool{}
	for _, taint := range node.Spec.Taints {
		if taint.Key == key {
			effects[taint.Effect] = true
		}
	}
	return effects[corev1.TaintEffectNoSchedule] && effects[corev1.TaintEffectNoExecute]
}

// becomesReady waits until a Node is Ready and has no taints but the test's own.
func (w *world) becomesReady(t *testing.T, name string) *corev1.Node {
	t.Helper()
	return becomes(t, w.client.CoreV1().Nodes(), name, "Ready", func(node *corev1.Node) bool {
		for _, taint := range node.Spec.Taints {
			if taint.Key != ownMark {
				return false
			}
		}
		return readiness(node) == corev1.ConditionTrue
	})
}

func TestAddedMachineBecomesReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.namespace + "-added"
	require.NoError(t, machine.Add(t.Context(), w.client, name))
	w.cleanup(t, func(ctx context.Context) error { return w.discard(ctx, name) })
	// A new Node is tainted not-ready, so nobody's Pods are there before this.
	patch, err := json.Marshal(corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{w.ownTaint()}}})
	require.NoError(t, err)
	_, err = w.client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	node := w.becomesReady(t, name)
	require.Equal(t, w.cluster.Version, node.Status.NodeInfo.KubeletVersion)
	require.NotEmpty(t, node.Status.NodeInfo.BootID)
	require.Equal(t, "4", node.Status.Allocatable.Cpu().String())
	lease := exists(t, w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), name)
	require.Equal(t, name, lease.OwnerReferences[0].Name)

	err = machine.Add(t.Context(), w.client, name)
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	require.ErrorContains(t, err, "add node "+name)
}

func TestRemovedMachineCanBeAddedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.addMachine(t)
	first := w.becomesReady(t, name)
	require.NoError(t, machine.Remove(t.Context(), w.client, name))
	isGone(t, w.client.CoreV1().Nodes(), name)

	node := machine.Node(name, w.cluster.Version)
	node.Labels[ownMark] = w.namespace
	node.Spec.Taints = first.Spec.Taints
	_, err := w.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	second := w.becomesReady(t, name)
	require.NotEqual(t, first.UID, second.UID)
	require.NotEqual(t, first.Status.NodeInfo.BootID, second.Status.NodeInfo.BootID)
	becomes(t, w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), name, "the new Node's", func(lease *coordinationv1.Lease) bool {
		return len(lease.OwnerReferences) == 1 && lease.OwnerReferences[0].UID == second.UID
	})
	w.createPod(t, "on-it", w.ownPodSpec())
}

func TestMachineSaysThatItIsNotReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.addMachine(t)
	w.createPod(t, "on-it", w.ownPodSpec())
	nodes, pods := w.client.CoreV1().Nodes(), w.client.CoreV1().Pods(w.namespace)

	require.NoError(t, machine.SetReady(t.Context(), w.client, name, false))
	becomes(t, nodes, name, "not ready and tainted", func(node *corev1.Node) bool {
		return readiness(node) == corev1.ConditionFalse && hasTaints(node, corev1.TaintNodeNotReady)
	})

	require.NoError(t, machine.SetReady(t.Context(), w.client, name, true))
	w.becomesReady(t, name)
	becomes(t, pods, "on-it", "Ready again", podReady)
}

// Pods that tolerate it for no longer are evicted by the taint controller.
func TestNotReadyMachineLosesItsPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.addMachine(t)
	spec := w.ownPodSpec()
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
		Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64),
	})
	w.createPod(t, "on-it", spec)
	require.NoError(t, machine.SetReady(t.Context(), w.client, name, false))
	isGone(t, w.client.CoreV1().Pods(w.namespace), "on-it")
}

func TestSwitchedOffMachineFallsSilent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: the machine's Lease has to run out")
	}
	t.Parallel()
	w := newWorld(t)
	name := w.addMachine(t)
	w.createPod(t, "stays", w.ownPodSpec())
	w.createPod(t, "deleted", w.ownPodSpec())
	nodes, pods := w.client.CoreV1().Nodes(), w.client.CoreV1().Pods(w.namespace)

	require.NoError(t, machine.SetPower(t.Context(), w.client, name, false))
	becomes(t, nodes, name, "unknown and tainted", func(node *corev1.Node) bool {
		return readiness(node) == corev1.ConditionUnknown && hasTaints(node, corev1.TaintNodeUnreachable)
	})
	becomes(t, pods, "stays", "running, for all that is known, and not Ready", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && !podReady(pod)
	})
	// Nobody is there to say that a deleted Pod has ended.
	require.NoError(t, pods.Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
	deleted, err := pods.Get(t.Context(), "deleted", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, deleted.DeletionTimestamp)

	require.NoError(t, machine.SetPower(t.Context(), w.client, name, true))
	w.becomesReady(t, name)
	isGone(t, pods, "deleted")
	becomes(t, pods, "stays", "Ready again", podReady)
}

func TestPodsOfRemovedMachineAreCollected(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: the Pod garbage collector looks every 20 s, and gives a Node 40 s to come back")
	}
	t.Parallel()
	w := newWorld(t)
	name := w.addMachine(t)
	w.createPod(t, "on-it", w.ownPodSpec())
	require.NoError(t, machine.Remove(t.Context(), w.client, name))
	isGone(t, w.client.CoreV1().Nodes(), name)
	isGone(t, w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), name)
	isGone(t, w.client.CoreV1().Pods(w.namespace), "on-it")
}

// A Node without the mark of a simulated machine is somebody's real one.
func TestRealNodesAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.client.CoreV1().Nodes()
	name := w.namespace + "-real"
	_, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.cleanup(t, func(ctx context.Context) error { return nodes.Delete(ctx, name, metav1.DeleteOptions{}) })

	type change = func(context.Context, kubernetes.Interface, string) error
	for what, do := range map[string]change{
		"Remove": machine.Remove,
		"SetReady": func(ctx context.Context, client kubernetes.Interface, name string) error {
			return machine.SetReady(ctx, client, name, false)
		},
		"SetPower": func(ctx context.Context, client kubernetes.Interface, name string) error {
			return machine.SetPower(ctx, client, name, false)
		},
	} {
		err := do(t.Context(), w.client, name)
		require.ErrorContains(t, err, fmt.Sprintf("node %s: it is not a simulated machine", name), what)
		err = do(t.Context(), w.client, name+"-absent")
		require.True(t, apierrors.IsNotFound(err), "%s of an absent Node: %v", what, err)
	}
	node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, node.DeletionTimestamp)
	require.NotContains(t, node.Labels, machine.PowerLabel)
	require.NotContains(t, node.Annotations, machine.ReadyAnnotation)
}

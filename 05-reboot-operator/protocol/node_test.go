package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is left of a Node in a cache decides as the Node itself does, and an update of anything else concerns nobody.
func TestStrip(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{"pool": "x"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
			Annotations: map[string]string{NeededAnnotation: "kernel", AdmittedAnnotation: "x", "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:   corev1.NodeSystemInfo{BootID: "b"},
			Images:     []corev1.ContainerImage{{Names: []string{"web"}}},
		},
	}
	stripped, err := Strip(node.DeepCopy())
	require.NoError(t, err)
	want := node.DeepCopy()
	want.ManagedFields, want.Status.Images = nil, nil
	want.Annotations = map[string]string{NeededAnnotation: "kernel", AdmittedAnnotation: "x"}
	want.Status.Conditions = want.Status.Conditions[1:]
	require.Equal(t, want, stripped)
	got := stripped.(*corev1.Node)
	require.Equal(t, PhaseOf(node), PhaseOf(got))
	require.Equal(t, IsReady(node), IsReady(got))

	changed := node.DeepCopy()
	changed.ResourceVersion, changed.Annotations["example.com/x"] = "8", "y"
	changed.Status.Conditions[0].Status = corev1.ConditionTrue
	again, err := Strip(changed)
	require.NoError(t, err)
	require.False(t, Differ(got, again.(*corev1.Node)))

	bare, err := Strip(&corev1.Node{})
	require.NoError(t, err)
	require.Equal(t, &corev1.Node{}, bare)
	for _, other := range []any{&corev1.Pod{}, "a tombstone"} {
		same, err := Strip(other)
		require.NoError(t, err)
		require.Equal(t, other, same)
	}
}

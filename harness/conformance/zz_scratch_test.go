package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/machine"
)

func TestScratch(t *testing.T) {
	w := newWorld(t)
	name := func(i int) string { return fmt.Sprintf("%s-%d", w.namespace, i) }
	add := func() {
		for i := range 30 {
			node := machine.Node(name(i), w.cluster.Version)
			node.Labels[ownMark] = w.namespace
			node.Spec.Taints = []corev1.Taint{w.ownTaint()}
			_, err := w.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		for i := range 30 {
			w.becomesReady(t, name(i))
		}
	}
	add()
	for i := range 30 {
		require.NoError(t, machine.Remove(t.Context(), w.client, name(i)))
		node := machine.Node(name(i), w.cluster.Version)
		node.Labels[ownMark] = w.namespace
		node.Spec.Taints = []corev1.Taint{w.ownTaint()}
		_, err := w.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(300 * time.Millisecond)
		spec := w.ownPodSpec()
		spec.NodeName = name(i)
		_, err = w.client.CoreV1().Pods(w.namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: webLabels},
			Spec:       spec,
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		w.cleanup(t, func(ctx context.Context) error { return w.discard(ctx, name(i)) })
	}
	for range 30 {
		time.Sleep(time.Second)
		pods, err := w.livePods(t.Context(), webSelector)
		require.NoError(t, err)
		n := 0
		for _, pod := range pods {
			if podReady(&pod) {
				n++
			}
		}
		t.Log(len(pods), n)
	}
}

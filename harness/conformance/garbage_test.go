package conformance_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// createOwnerAndDependent creates two ConfigMaps, "owner" and "dependent".
func (w *world) createOwnerAndDependent(t *testing.T, finalizers ...string) {
	t.Helper()
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	owner, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	blocks := true
	_, err = configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:       "dependent",
		Finalizers: finalizers,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &blocks,
		}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func propagation(policy metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}

func TestDependentsGoWithTheirOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createOwnerAndDependent(t)
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	require.NoError(t, configMaps.Delete(t.Context(), "owner", propagation(metav1.DeletePropagationBackground)))
	isGone(t, configMaps, "owner")
	isGone(t, configMaps, "dependent")
}

func TestOrphansStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createOwnerAndDependent(t)
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	require.NoError(t, configMaps.Delete(t.Context(), "owner", propagation(metav1.DeletePropagationOrphan)))
	isGone(t, configMaps, "owner")
	dependent, err := configMaps.Get(t.Context(), "dependent", metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, dependent.DeletionTimestamp)
	// Without an owner, it is no dependent any more, and nothing will remove it later.
	require.Empty(t, dependent.OwnerReferences)
}

func TestForegroundDeletionWaitsForDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const finalizer = "example.com/hold"
	w.createOwnerAndDependent(t, finalizer)
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	require.NoError(t, configMaps.Delete(t.Context(), "owner", propagation(metav1.DeletePropagationForeground)))
	becomes(t, configMaps, "dependent", "on its way out", func(dependent *corev1.ConfigMap) bool {
		return dependent.DeletionTimestamp != nil
	})
	owner, err := configMaps.Get(t.Context(), "owner", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{metav1.FinalizerDeleteDependents}, owner.Finalizers)

	patch := []byte(`{"metadata": {"finalizers": null}}`)
	_, err = configMaps.Patch(t.Context(), "dependent", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	isGone(t, configMaps, "dependent")
	isGone(t, configMaps, "owner")
}

func TestPodsGoWithTheirDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deploy(t, 2, podSpec())
	require.NoError(t, w.client.AppsV1().Deployments(w.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	eventually(t, func(ctx context.Context) error {
		sets, err := w.client.AppsV1().ReplicaSets(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(sets.Items)+len(pods.Items) > 0 {
			return fmt.Errorf("%d ReplicaSets and %d Pods are left", len(sets.Items), len(pods.Items))
		}
		return nil
	})
}

func TestNamespaceGoesWithAllThatIsInIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := podSpec()
	// As kubectl delete --now: the namespace's controller comes back when the grace period is over.
	spec.TerminationGracePeriodSeconds = new(int64(1))
	w.deploy(t, 2, spec)
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	require.NoError(t, w.client.CoreV1().Namespaces().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}))
	late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	_, err = configMaps.Create(t.Context(), late, metav1.CreateOptions{})
	require.True(t, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err), "%v", err)
	isGone(t, w.client.CoreV1().Namespaces(), w.namespace)
	isGone(t, configMaps, "config")
	pods, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, pods.Items)
}

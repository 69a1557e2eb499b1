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

// createOwnerAndDependent creates two ConfigMaps, "owner" and "dependent". The dependent gets the finalizers.
func (e *testEnv) createOwnerAndDependent(t *testing.T, finalizers ...string) {
	t.Helper()
	configMaps := e.client.CoreV1().ConfigMaps(e.namespace)
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

func withPropagation(policy metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}

func TestDependentsAreDeletedWithTheirOwner(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	e.createOwnerAndDependent(t)
	configMaps := e.client.CoreV1().ConfigMaps(e.namespace)
	require.NoError(t, configMaps.Delete(t.Context(), "owner", withPropagation(metav1.DeletePropagationBackground)))
	waitForDeletion(t, configMaps, "owner")
	waitForDeletion(t, configMaps, "dependent")
}

func TestOrphanedDependentsAreKept(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	e.createOwnerAndDependent(t)
	configMaps := e.client.CoreV1().ConfigMaps(e.namespace)
	require.NoError(t, configMaps.Delete(t.Context(), "owner", withPropagation(metav1.DeletePropagationOrphan)))
	waitForDeletion(t, configMaps, "owner")
	dependent, err := configMaps.Get(t.Context(), "dependent", metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, dependent.DeletionTimestamp)
	// Without an owner reference, it will not be garbage collected later either.
	require.Empty(t, dependent.OwnerReferences)
}

func TestForegroundDeletionWaitsForDependents(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	const finalizer = "example.com/hold"
	e.createOwnerAndDependent(t, finalizer)
	configMaps := e.client.CoreV1().ConfigMaps(e.namespace)
	require.NoError(t, configMaps.Delete(t.Context(), "owner", withPropagation(metav1.DeletePropagationForeground)))
	waitUntil(t, configMaps, "dependent", "being deleted", func(dependent *corev1.ConfigMap) bool {
		return dependent.DeletionTimestamp != nil
	})
	owner, err := configMaps.Get(t.Context(), "owner", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{metav1.FinalizerDeleteDependents}, owner.Finalizers)

	patch := []byte(`{"metadata": {"finalizers": null}}`)
	_, err = configMaps.Patch(t.Context(), "dependent", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	waitForDeletion(t, configMaps, "dependent")
	waitForDeletion(t, configMaps, "owner")
}

func TestPodsAreDeletedWithTheirDeployment(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	e.deploy(t, 2, podSpec())
	require.NoError(t, e.client.AppsV1().Deployments(e.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	eventually(t, func(ctx context.Context) error {
		sets, err := e.client.AppsV1().ReplicaSets(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := e.client.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(sets.Items)+len(pods.Items) > 0 {
			return fmt.Errorf("%d ReplicaSets and %d Pods still exist", len(sets.Items), len(pods.Items))
		}
		return nil
	})
}

func TestNamespaceIsDeletedWithItsContents(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	spec := podSpec()
	// As kubectl delete --now does: the namespace controller only retries when the Pods' grace period is over.
	spec.TerminationGracePeriodSeconds = new(int64(1))
	e.deploy(t, 2, spec)
	configMaps := e.client.CoreV1().ConfigMaps(e.namespace)
	_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	require.NoError(t, e.client.CoreV1().Namespaces().Delete(t.Context(), e.namespace, metav1.DeleteOptions{}))
	late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	_, err = configMaps.Create(t.Context(), late, metav1.CreateOptions{})
	require.True(t, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err), "%v", err)
	waitForDeletion(t, e.client.CoreV1().Namespaces(), e.namespace)
	waitForDeletion(t, configMaps, "config")
	pods, err := e.client.CoreV1().Pods(e.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, pods.Items)
}

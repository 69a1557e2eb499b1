package conformance_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestQuotaCountsPodsAndRefusesMore(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	quotas, pods := e.client.CoreV1().ResourceQuotas(e.namespace), e.client.CoreV1().Pods(e.namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "one-pod"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	waitForUsed := func(pods int64) {
		t.Helper()
		waitUntil(t, quotas, "one-pod", fmt.Sprintf("counting %d Pods", pods), func(quota *corev1.ResourceQuota) bool {
			used, counted := quota.Status.Used[corev1.ResourcePods]
			return counted && used.Value() == pods
		})
	}
	waitForUsed(0)
	e.createPod(t, "first", podSpec())
	waitForUsed(1)

	second := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: podSpec()}
	_, err = pods.Create(t.Context(), second, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "exceeded quota: one-pod, requested: pods=1, used: pods=1, limited: pods=1")

	require.NoError(t, pods.Delete(t.Context(), "first", metav1.DeleteOptions{}))
	waitForUsed(0)
	eventually(t, func(ctx context.Context) error { // until the admission plugin's own cache has the new status
		_, err := pods.Create(ctx, second, metav1.CreateOptions{})
		return err
	})
	waitUntil(t, pods, "second", "Ready", podReady)
}

func TestLimitRangeSetsDefaultRequestsAndLimits(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	_, err := e.client.CoreV1().LimitRanges(e.namespace).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type:           corev1.LimitTypeContainer,
			DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			Default:        corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	resources := e.createPod(t, "with-defaults", podSpec()).Spec.Containers[0].Resources
	require.Equal(t, "100m", resources.Requests.Cpu().String())
	require.Equal(t, "200m", resources.Limits.Cpu().String())
}

// createDisruptionBudget creates PodDisruptionBudget "web" for the Pods of Deployment "web", and waits until its status
// allows that many disruptions.
func (e *testEnv) createDisruptionBudget(t *testing.T, minAvailable int, allowed int32) {
	t.Helper()
	available := intstr.FromInt(minAvailable)
	_, err := e.client.PolicyV1().PodDisruptionBudgets(e.namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &available,
			Selector:     &metav1.LabelSelector{MatchLabels: webLabels},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	e.waitForDisruptionsAllowed(t, allowed)
}

// waitForDisruptionsAllowed waits until PodDisruptionBudget "web" allows that many disruptions.
func (e *testEnv) waitForDisruptionsAllowed(t *testing.T, disruptions int32) {
	t.Helper()
	waitUntil(t, e.client.PolicyV1().PodDisruptionBudgets(e.namespace), "web", fmt.Sprintf("up to date with %d disruptions allowed", disruptions), func(budget *policyv1.PodDisruptionBudget) bool {
		return budget.Status.ObservedGeneration == budget.Generation && budget.Status.DisruptionsAllowed == disruptions
	})
}

func TestEvictionRespectsDisruptionBudgets(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	e.deploy(t, 2, podSpec())
	e.createDisruptionBudget(t, 2, 0)
	pods, err := e.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	evicted := pods[0].Name
	evict := func() error {
		return e.client.PolicyV1().Evictions(e.namespace).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: evicted},
		})
	}

	err = evict()
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	require.True(t, ok, "%v", err)
	require.Contains(t, cause.Message, "The disruption budget web needs 2 healthy pods and has 2 currently")

	patch := []byte(`{"spec": {"minAvailable": 1}}`)
	_, err = e.client.PolicyV1().PodDisruptionBudgets(e.namespace).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	e.waitForDisruptionsAllowed(t, 1)
	require.NoError(t, evict())
	waitForDeletion(t, e.client.CoreV1().Pods(e.namespace), evicted)
	e.waitForRollout(t, 2)
	e.waitForDisruptionsAllowed(t, 1)
}

package conformance_test

import (
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

func TestQuotaCountsAndRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	quotas, pods := w.client.CoreV1().ResourceQuotas(w.namespace), w.client.CoreV1().Pods(w.namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "one-pod"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	usedBecomes := func(want int64) {
		t.Helper()
		becomes(t, quotas, "one-pod", "counted", func(quota *corev1.ResourceQuota) bool {
			used, counted := quota.Status.Used[corev1.ResourcePods]
			return counted && used.Value() == want
		})
	}
	usedBecomes(0)
	w.createPod(t, "first", podSpec())
	usedBecomes(1)

	second := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: podSpec()}
	_, err = pods.Create(t.Context(), second, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "exceeded quota: one-pod, requested: pods=1, used: pods=1, limited: pods=1")

	require.NoError(t, pods.Delete(t.Context(), "first", metav1.DeleteOptions{}))
	usedBecomes(0)
	w.createPod(t, "second", podSpec())
}

func TestLimitRangeSetsDefaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.client.CoreV1().LimitRanges(w.namespace).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type:           corev1.LimitTypeContainer,
			DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			Default:        corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	resources := w.createPod(t, "modest", podSpec()).Spec.Containers[0].Resources
	require.Equal(t, "100m", resources.Requests.Cpu().String())
	require.Equal(t, "200m", resources.Limits.Cpu().String())
}

// protect creates a PodDisruptionBudget "web" for the Pods of the Deployment "web" and waits until it
// allows so many disruptions.
func (w *world) protect(t *testing.T, minAvailable int, allowed int32) {
	t.Helper()
	available := intstr.FromInt(minAvailable)
	_, err := w.client.PolicyV1().PodDisruptionBudgets(w.namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &available,
			Selector:     &metav1.LabelSelector{MatchLabels: webLabels},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.allows(t, allowed)
}

func (w *world) allows(t *testing.T, disruptions int32) {
	t.Helper()
	becomes(t, w.client.PolicyV1().PodDisruptionBudgets(w.namespace), "web", "settled", func(budget *policyv1.PodDisruptionBudget) bool {
		return budget.Status.ObservedGeneration == budget.Generation && budget.Status.DisruptionsAllowed == disruptions
	})
}

func TestEvictionAsksTheDisruptionBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deploy(t, 2, podSpec())
	w.protect(t, 2, 0)
	pods, err := w.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	victim := pods[0].Name
	evict := func() error {
		return w.client.PolicyV1().Evictions(w.namespace).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: victim},
		})
	}

	err = evict()
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	require.True(t, ok, "%v", err)
	require.Contains(t, cause.Message, "The disruption budget web needs 2 healthy pods and has 2 currently")

	patch := []byte(`{"spec": {"minAvailable": 1}}`)
	_, err = w.client.PolicyV1().PodDisruptionBudgets(w.namespace).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	w.allows(t, 1)
	require.NoError(t, evict())
	isGone(t, w.client.CoreV1().Pods(w.namespace), victim)
	w.settles(t, 2)
	w.allows(t, 1)
}

package status_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/status"
)

func TestRemaining(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: new(true)}},
		}, Spec: corev1.PodSpec{NodeName: "n"}}
		if change != nil {
			change(pod)
		}
		return pod
	}
	budget := func(name, app string, allowed int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}
	}
	counting := func(budget *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
		budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
		budget.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason}}
		return budget
	}
	healthy := func(budget *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
		budget.Status.ExpectedPods, budget.Status.DesiredHealthy, budget.Status.CurrentHealthy = 2, 2, 2
		return budget
	}
	changed := func(budget *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
		budget.Generation = 2
		return budget
	}
	failed := func(budget *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
		budget.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: `found no controller ref for pod "a"`}}
		return budget
	}
	terminating := func(pod *corev1.Pod) {
		pod.DeletionTimestamp = new(metav1.Now())
		pod.Finalizers = []string{"example.com/keep"}
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		force   bool
		want    string
	}{
		"nothing":     {nil, false, ""},
		"a Pod":       {[]runtime.Object{pod("a", nil)}, false, "Pod shop/a"},
		"a budget":    {[]runtime.Object{pod("a", nil), budget("keep", "a", 0), budget("other", "b", 0)}, false, "Pod shop/a (PodDisruptionBudget keep allows no disruption)"},
		"two budgets": {[]runtime.Object{pod("a", nil), budget("one", "a", 1), budget("two", "a", 0)}, false, "Pod shop/a (PodDisruptionBudgets one and two select it, and the API server evicts no Pod that more than one selects; change one of their selectors)"},
		"a budget of Pods without a controller": {[]runtime.Object{pod("a", func(pod *corev1.Pod) { pod.OwnerReferences = nil }), counting(budget("keep", "a", 0))}, true,
			"Pod shop/a (PodDisruptionBudget keep allows no disruption: no controller owns the Pod, so there is no number of Pods to take maxUnavailable or a percentage of; use a number as minAvailable)"},
		"too few healthy Pods":      {[]runtime.Object{pod("a", nil), healthy(budget("keep", "a", 0))}, false, "Pod shop/a (PodDisruptionBudget keep allows no disruption: it wants 2 healthy Pods, and 2 are)"},
		"just changed":              {[]runtime.Object{pod("a", nil), changed(budget("keep", "a", 0))}, false, "Pod shop/a (PodDisruptionBudget keep allows no disruption yet: it has just been changed)"},
		"a condition that says why": {[]runtime.Object{pod("a", nil), failed(budget("keep", "a", 0))}, false, "Pod shop/a (PodDisruptionBudget keep allows no disruption: found no controller ref for pod \"a\")"},
		"terminating":               {[]runtime.Object{pod("a", terminating), budget("keep", "a", 0)}, false, "Pod shop/a (terminating)"},
		"many":                      {[]runtime.Object{pod("e", nil), pod("d", nil), pod("c", nil), pod("b", nil), pod("a", nil)}, false, "Pod shop/a, Pod shop/b, Pod shop/c, and 2 more"},
		"unmanaged":                 {[]runtime.Object{pod("a", func(pod *corev1.Pod) { pod.OwnerReferences = nil })}, false, "somebody to act: no controller owns Pods that would be evicted, so nobody would create them again: shop/a; delete them, or run the controller with --delete-unmanaged-pods"},
		"force unmanaged":           {[]runtime.Object{pod("a", func(pod *corev1.Pod) { pod.OwnerReferences = nil })}, true, "Pod shop/a"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.objects...)
			got, err := status.Remaining(t.Context(), client, "n", drain.Rules{DeleteUnmanagedPods: test.force})
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			require.Zero(t, nodetest.CountWrites(client.Actions()))
		})
	}

	selector, err := labels.Parse("app=a")
	require.NoError(t, err)
	got, err := status.Remaining(t.Context(), fake.NewClientset(pod("a", nil), pod("b", nil)), "n", drain.Rules{BlockingPods: []labels.Selector{selector}})
	require.NoError(t, err)
	require.Equal(t, "Pod shop/a, which blocks the reboot", got)

	client := fake.NewClientset(pod("a", nil), budget("keep", "a", 0))
	client.PrependReactor("list", "poddisruptionbudgets", forbid)
	got, err = status.Remaining(t.Context(), client, "n", drain.Rules{})
	require.NoError(t, err)
	require.Equal(t, "Pod shop/a", got)
	client.PrependReactor("list", "pods", forbid)
	_, err = status.Remaining(t.Context(), client, "n", drain.Rules{})
	require.ErrorContains(t, err, "list the Pods of Node n: ")
}

// forbid answers a request as RBAC does.
func forbid(action clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("RBAC says no"))
}

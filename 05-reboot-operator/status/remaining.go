package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/reboot/drain"
)

// Remaining says what the drain of a Node is waiting for: the Pods that are left, and the PodDisruptionBudgets that do not
// allow their eviction; "" if there is nothing left to wait for. It evicts nothing. PodDisruptionBudgets that the caller may
// not read are left out.
func Remaining(ctx context.Context, client kubernetes.Interface, node string, rules drain.Rules) (string, error) {
	switch blocker, err := drain.BlockerOn(ctx, client, node, rules); {
	case err != nil:
		return "", err
	case blocker != nil:
		return fmt.Sprintf("Pod %s/%s, which blocks the reboot", blocker.Namespace, blocker.Name), nil
	}
	list, errs := drain.Helper(ctx, client, rules).GetPodsForDeletion(node)
	if list == nil {
		return "", fmt.Errorf("list the Pods of Node %s: %w", node, errors.Join(errs...))
	}
	if len(errs) > 0 { // Pods that must not be evicted
		return "somebody to act: " + drain.Undrainable(errs), nil
	}
	budgets := map[string][]policyv1.PodDisruptionBudget{} // by namespace
	var pods []string
	for _, pod := range list.Pods() {
		if _, ok := budgets[pod.Namespace]; !ok {
			list, err := client.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{})
			switch {
			case err == nil:
				budgets[pod.Namespace] = list.Items
			case apierrors.IsForbidden(err):
				budgets[pod.Namespace] = nil
			default:
				return "", fmt.Errorf("list the PodDisruptionBudgets in %s: %w", pod.Namespace, err)
			}
		}
		pods = append(pods, describe(&pod, budgets[pod.Namespace]))
	}
	if len(pods) == 0 {
		return "", nil
	}
	slices.Sort(pods)
	return enumerate(pods, 3), nil
}

// describe names a Pod that is to be evicted, and the PodDisruptionBudgets that do not allow it.
func describe(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) string {
	name := "Pod " + pod.Namespace + "/" + pod.Name
	if pod.DeletionTimestamp != nil {
		return name + " (terminating)"
	}
	var selecting, against []string
	for _, budget := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		selecting = append(selecting, budget.Name)
		if budget.Status.DisruptionsAllowed == 0 {
			against = append(against, budget.Name+why(pod, &budget))
		}
	}
	slices.Sort(selecting)
	slices.Sort(against)
	switch {
	case len(selecting) > 1: // the API server answers with an internal error, whatever they allow
		return fmt.Sprintf("%s (PodDisruptionBudgets %s select it, and the API server evicts no Pod that more than one selects; change one of their selectors)",
			name, strings.Join(selecting, " and "))
	case len(against) == 0:
		return name
	}
	return fmt.Sprintf("%s (PodDisruptionBudget %s)", name, against[0])
}

// why says why a PodDisruptionBudget allows no disruption, as far as its status tells.
func why(pod *corev1.Pod, budget *policyv1.PodDisruptionBudget) string {
	const allowsNone = " allows no disruption"
	status := budget.Status
	switch {
	case status.ObservedGeneration < budget.Generation:
		return allowsNone + " yet: it has just been changed"
	case metav1.GetControllerOf(pod) == nil && status.ExpectedPods == 0 && (budget.Spec.MaxUnavailable != nil || isPercentage(budget.Spec.MinAvailable)):
		// Only an Event of the disruption controller tells, and the condition's message is empty.
		return allowsNone + ": no controller owns the Pod, so there is no number of Pods to take maxUnavailable or a percentage of; use a number as minAvailable"
	}
	for _, condition := range status.Conditions {
		if condition.Type == policyv1.DisruptionAllowedCondition && condition.Status == metav1.ConditionFalse && condition.Message != "" {
			return allowsNone + ": " + condition.Message
		}
	}
	if status.ExpectedPods == 0 {
		return allowsNone
	}
	return fmt.Sprintf("%s: it wants %d healthy Pods, and %d are", allowsNone, status.DesiredHealthy, status.CurrentHealthy)
}

func isPercentage(value *intstr.IntOrString) bool { return value != nil && value.Type == intstr.String }

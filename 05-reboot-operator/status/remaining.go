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
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
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
	case blocker != "":
		return "Pod " + blocker + ", which blocks the reboot", nil
	}
	list, errs := drain.Helper(ctx, client, rules).GetPodsForDeletion(node)
	if list == nil {
		return "", fmt.Errorf("list the Pods of Node %s: %w", node, errors.Join(errs...))
	}
	if len(errs) > 0 { // Pods that must not be evicted
		return "somebody to delete Pods that the drain does not evict: " + utilerrors.NewAggregate(errs).Error(), nil
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
	var against []string
	for _, budget := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) && budget.Status.DisruptionsAllowed == 0 {
			against = append(against, budget.Name)
		}
	}
	if len(against) == 0 {
		return name
	}
	slices.Sort(against)
	return fmt.Sprintf("%s (PodDisruptionBudget %s allows no disruption)", name, strings.Join(against, ", "))
}

package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// BlockerOn returns the namespace and name of a Pod on a Node that must not be interrupted; "" for none. Usually such a Node is
// not admitted, but the Pod may come when the Node is about to be cordoned, or later if it belongs to a DaemonSet.
func BlockerOn(ctx context.Context, client kubernetes.Interface, node string, rules Rules) (string, error) {
	if rules.BlockingPods == nil {
		return "", nil
	}
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		LabelSelector: rules.BlockingPods.String(),
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return "", fmt.Errorf("list the Pods on Node %s that block reboots: %w", node, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		// If a Pod should have terminated a minute ago, its kubelet is not running, and the reboot may repair that.
		if deleted := list.Items[i].DeletionTimestamp; deleted == nil || time.Since(deleted.Time) <= skipTerminating {
			pods = append(pods, &list.Items[i])
		}
	}
	return Blockers(pods)[node], nil
}

// hasEnded reports whether all containers of a Pod have ended for good.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Blockers returns, by the name of each Node, the first of the given Pods that run on it. Those that have ended don't count.
func Blockers(pods []*corev1.Pod) map[string]string {
	blocking := map[string]string{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || hasEnded(pod) {
			continue
		}
		if name := pod.Namespace + "/" + pod.Name; blocking[pod.Spec.NodeName] == "" || name < blocking[pod.Spec.NodeName] {
			blocking[pod.Spec.NodeName] = name
		}
	}
	return blocking
}

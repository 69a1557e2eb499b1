package drain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// BlockerOn returns a Pod on a Node that must not be interrupted; nil for none. Usually such a Node is not admitted, but the Pod
// may come when the Node is about to be cordoned, or later if it belongs to a DaemonSet.
func BlockerOn(ctx context.Context, client kubernetes.Interface, node string, rules Rules) (*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, selector := range rules.BlockingPods {
		list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			LabelSelector: selector.String(),
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		})
		if err != nil {
			return nil, fmt.Errorf("list the Pods on Node %s that block reboots: %w", node, err)
		}
		for i := range list.Items {
			// If a Pod should have terminated a minute ago, its kubelet is not running, and the reboot may repair that.
			if deleted := list.Items[i].DeletionTimestamp; deleted == nil || time.Since(deleted.Time) <= skipTerminating {
				pods = append(pods, &list.Items[i])
			}
		}
	}
	return Blockers(pods)[node], nil
}

// hasEnded reports whether all containers of a Pod have ended for good.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Blockers returns, by the name of each Node, the first of the given Pods that run on it. Those that have ended don't count.
func Blockers(pods []*corev1.Pod) map[string]*corev1.Pod {
	blocking := map[string]*corev1.Pod{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || hasEnded(pod) {
			continue
		}
		if first := blocking[pod.Spec.NodeName]; first == nil || cmp.Or(strings.Compare(pod.Namespace, first.Namespace), strings.Compare(pod.Name, first.Name)) < 0 {
			blocking[pod.Spec.NodeName] = pod
		}
	}
	return blocking
}

// Names returns the namespace and name of each Pod.
func Names(pods map[string]*corev1.Pod) map[string]string {
	names := map[string]string{}
	for node, pod := range pods {
		names[node] = pod.Namespace + "/" + pod.Name
	}
	return names
}

// Running returns the names of the Nodes on which at least one of the given Pods runs, with all of its containers. Readiness
// does not matter: on a Node whose kubelet has stopped reporting no Pod is ready, and an agent may still be able to reboot it.
func Running(pods []*corev1.Pod) map[string]bool {
	running := map[string]bool{}
	for _, pod := range pods {
		stopped := slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool { return status.State.Running == nil })
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && !stopped {
			running[pod.Spec.NodeName] = true
		}
	}
	return running
}

// Strip removes what the functions above do not read from a Pod before it is cached.
func Strip(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields = nil
		pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
		pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, ContainerStatuses: pod.Status.ContainerStatuses}
	}
	return object, nil
}

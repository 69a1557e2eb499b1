package nodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	runtimeutil "k8s.io/kubernetes/pkg/kubelet/kuberuntime/util"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"
)

// conditions returns the conditions of a Pod whose phase and containers are as in status. The kubelet's own functions make those
// that are the kubelet's. The others, such as those of readiness gates, are kept, and so is the order.
func conditions(now metav1.Time, pod *corev1.Pod, status *corev1.PodStatus) []corev1.PodCondition {
	old, runtime := &pod.Status, runtimeStatus(pod, status)
	containers := slices.Concat(status.InitContainerStatuses, status.ContainerStatuses)
	own := []corev1.PodCondition{
		kubeletstatus.GeneratePodReadyToStartContainersCondition(pod, old, runtime),
		kubeletstatus.GeneratePodInitializedCondition(pod, old, containers, status.Phase),
		kubeletstatus.GeneratePodReadyCondition(pod, old, old.Conditions, containers, status.Phase),
		kubeletstatus.GenerateContainersReadyCondition(pod, old, containers, status.Phase),
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation},
	}
	if podutil.AllContainersCouldRestart(&pod.Spec) {
		own = append(own, kubeletstatus.GenerateAllContainersRestartingCondition(pod, runtime, old, status.Phase))
	}
	all := slices.Clone(old.Conditions)
	for _, condition := range own {
		condition.LastTransitionTime = now
		i, before := podutil.GetPodCondition(old, condition.Type)
		if before == nil {
			all = append(all, condition)
			continue
		}
		if before.Status == condition.Status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
		all[i] = condition
	}
	return all
}

// runtimeStatus returns what a container runtime would say of the Pod's sandbox: it is ready until the Pod has ended.
func runtimeStatus(pod *corev1.Pod, status *corev1.PodStatus) *kubecontainer.PodStatus {
	state := runtimeapi.PodSandboxState_SANDBOX_READY
	if podutil.IsPodPhaseTerminal(status.Phase) {
		state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return &kubecontainer.PodStatus{SandboxStatuses: []*runtimeapi.PodSandboxStatus{{
		Metadata: &runtimeapi.PodSandboxMetadata{},
		State:    state,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: &runtimeapi.NamespaceOption{Network: runtimeutil.NetworkNamespaceForPod(pod)},
		}},
	}}}
}

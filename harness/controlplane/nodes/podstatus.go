package nodes

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"example.com/controllers/harness/machine"
)

// templateStatusPatch is statusPatch for templates. pod is the Pod as JSON, decoded. podIPs may be left out.
func templateStatusPatch(pod any, hostIPs []string, podIPs ...[]string) (string, error) {
	data, err := json.Marshal(pod)
	if err != nil {
		return "", err
	}
	var decoded corev1.Pod
	if err := json.Unmarshal(data, &decoded); err != nil {
		return "", err
	}
	patch, err := statusPatch(metav1.Now(), &decoded, hostIPs, slices.Concat(podIPs...))
	return string(patch), err
}

// statusPatch returns the strategic merge patch, as JSON, that makes the status of a Pod what its kubelet reports next.
// If there is no difference, the patch changes nothing. It fails with a conflict if the Pod has changed meanwhile; the kubelet
// is then told of the change, and reports again.
//
// hostIPs are the addresses of the Pod's Node. podIPs are for the Pod, if it has none yet.
func statusPatch(now metav1.Time, pod *corev1.Pod, hostIPs, podIPs []string) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: pod.ResourceVersion}, // only here, so that the patch has it
		Status:     nextStatus(now, pod, hostIPs, podIPs),
	})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}

// nextStatus returns what the kubelet of the Pod's Node reports next. There is no container runtime: the container statuses
// are all that is known of the containers, and the conditions follow from them.
func nextStatus(now metav1.Time, pod *corev1.Pod, hostIPs, podIPs []string) corev1.PodStatus {
	old, status := &pod.Status, pod.Status.DeepCopy()
	_, held := pod.Annotations[machine.HoldAnnotation]
	switch {
	case podutil.IsPodPhaseTerminal(old.Phase):
		stopContainers(now, pod, status) // if another than the kubelet has set the phase
	case pod.DeletionTimestamp != nil && held:
		// The containers take their time to stop.
	case pod.DeletionTimestamp != nil:
		status.Phase = corev1.PodFailed
		stopContainers(now, pod, status)
	case old.Phase == corev1.PodRunning && isOfJob(pod):
		status.Phase = corev1.PodSucceeded
		stopContainers(now, pod, status)
	default:
		status.Phase = corev1.PodRunning
		runContainers(now, pod, status)
	}

	status.ObservedGeneration = pod.Generation
	if status.StartTime == nil {
		status.StartTime = &now
	}
	if len(hostIPs) > 0 {
		status.HostIP, status.HostIPs = hostIPs[0], nil
		for _, ip := range hostIPs {
			status.HostIPs = append(status.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	if len(status.PodIPs) == 0 && len(podIPs) > 0 {
		status.PodIP = podIPs[0]
		for _, ip := range podIPs {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
		}
	}
	status.Conditions = conditions(now, pod, status)
	return *status
}

// isOfJob reports whether a Pod is a Job's. Its containers complete as soon as they have been reported as running.
func isOfJob(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "Job" })
}

// runContainers starts the containers of a Pod that have not been started. The init containers have completed at once, and
// sidecars run.
func runContainers(now metav1.Time, pod *corev1.Pod, status *corev1.PodStatus) {
	old := status.InitContainerStatuses
	status.InitContainerStatuses = nil
	for _, container := range pod.Spec.InitContainers {
		s := run(now, pod, &container, statusOf(old, &container))
		if !podutil.IsRestartableInitContainer(&container) {
			if s.State.Running != nil {
				stop(now, &s, 0)
			}
			s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, s)
	}
	old = status.ContainerStatuses
	status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, run(now, pod, &container, statusOf(old, &container)))
	}
	sortByName(status.ContainerStatuses)
}

// run returns the status of a container that runs, with what is known of it. It is ready when it starts; after that, this is
// up to whoever plays the part of its readiness probe.
func run(now metav1.Time, pod *corev1.Pod, container *corev1.Container, s corev1.ContainerStatus) corev1.ContainerStatus {
	changed := s.State.Running != nil && s.Image != container.Image
	if changed {
		stop(now, &s, terminatedBySignal)
		s.LastTerminationState = s.State
		s.RestartCount++
	}
	if changed || s.State.Running == nil && s.State.Terminated == nil {
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		s.Ready = true
		s.Image = container.Image
		s.ContainerID = containerID(pod, container, s.RestartCount)
	}
	running := s.State.Running != nil
	s.Ready, s.Started = s.Ready && running, &running
	s.Resources, s.AllocatedResources = container.Resources.DeepCopy(), container.Resources.Requests
	return s
}

// terminatedBySignal is the exit code of a process that SIGTERM has ended: 128 + 15.
const terminatedBySignal = 143

// stopContainers stops the containers of a Pod that run. In a Pod that has succeeded, those that are not sidecars have completed.
//
// What has never run is reported as [k8s.io/kubernetes/pkg/kubelet/status.Manager].TerminatePod does.
func stopContainers(now metav1.Time, pod *corev1.Pod, status *corev1.PodStatus) {
	neverRan := len(status.ContainerStatuses) == 0
	if neverRan {
		waiting := "ContainerCreating"
		if len(pod.Spec.InitContainers) > 0 {
			waiting = "PodInitializing"
		}
		status.InitContainerStatuses = waitingContainers(pod.Spec.InitContainers, waiting)
		status.ContainerStatuses = waitingContainers(pod.Spec.Containers, waiting)
		sortByName(status.ContainerStatuses)
	}
	for i := range status.InitContainerStatuses {
		s := &status.InitContainerStatuses[i]
		switch {
		case neverRan && i == 0:
			lose(s)
		case s.State.Running != nil:
			stop(now, s, terminatedBySignal)
		}
	}
	exitCode := int32(0)
	if status.Phase == corev1.PodFailed {
		exitCode = terminatedBySignal
	}
	for i := range status.ContainerStatuses {
		s := &status.ContainerStatuses[i]
		switch {
		case neverRan && len(pod.Spec.InitContainers) == 0:
			lose(s)
		case s.State.Running != nil:
			stop(now, s, exitCode)
		}
		s.Ready = false
	}
}

// stop stops a container that runs.
func stop(now metav1.Time, s *corev1.ContainerStatus, exitCode int32) {
	reason := "Completed"
	if exitCode != 0 {
		reason = "Error"
	}
	s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitCode, Reason: reason, StartedAt: s.State.Running.StartedAt, FinishedAt: now, ContainerID: s.ContainerID,
	}}
	s.Ready, s.Started = false, new(bool)
}

// lose reports a container that was to run, and of which nothing is known, as failed.
func lose(s *corev1.ContainerStatus) {
	s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated", ExitCode: 137,
	}}
}

func waitingContainers(containers []corev1.Container, reason string) (statuses []corev1.ContainerStatus) {
	for _, container := range containers {
		statuses = append(statuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Started: new(bool),
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		})
	}
	return statuses
}

// statusOf returns the status of a container, or one without a state if there is none.
func statusOf(statuses []corev1.ContainerStatus, container *corev1.Container) corev1.ContainerStatus {
	if s, ok := podutil.GetContainerStatus(statuses, container.Name); ok {
		return s
	}
	return corev1.ContainerStatus{Name: container.Name}
}

// containerID returns an ID as the runtime that a machine's Node names would give to each start of a container.
func containerID(pod *corev1.Pod, container *corev1.Container, restarts int32) string {
	return fmt.Sprintf("simulated://%x", sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", pod.UID, container.Name, restarts)))
}

// sortByName sorts containers as a kubelet does, except init containers, which it leaves in the order of the spec.
func sortByName(statuses []corev1.ContainerStatus) {
	slices.SortFunc(statuses, func(a, b corev1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
}

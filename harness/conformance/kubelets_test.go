package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"example.com/controllers/harness/machine"
)

// The conditions and container statuses in these tests are what a real kubelet of v1.37.1 reports. Its own functions make the
// conditions (pkg/kubelet/status/generate.go); the rest follows pkg/kubelet/kubelet_pods.go and
// pkg/kubelet/prober/prober_manager.go.

// conditionsOf returns the conditions of a Pod, such as "Ready=False ContainersNotReady: containers with unready status: [main]".
// It fails unless those that a kubelet writes are about the Pod's generation, as its status is.
func conditionsOf(t *testing.T, pod *corev1.Pod) []string {
	t.Helper()
	require.Equal(t, pod.Generation, pod.Status.ObservedGeneration, "the status is about another generation")
	var texts []string
	for _, c := range pod.Status.Conditions {
		text := fmt.Sprintf("%s=%s", c.Type, c.Status)
		if c.Reason != "" {
			text += " " + c.Reason
		}
		if c.Message != "" {
			text += ": " + c.Message
		}
		texts = append(texts, text)
		if slices.Contains([]corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReadyToStartContainers}, c.Type) {
			require.Equal(t, pod.Generation, c.ObservedGeneration, c.Type)
		}
		require.False(t, c.LastTransitionTime.IsZero(), c.Type)
	}
	slices.Sort(texts)
	return texts
}

// containersOf returns the states of containers, such as "main ready started running" or "setup ready terminated Completed 0".
func containersOf(t *testing.T, statuses []corev1.ContainerStatus) []string {
	t.Helper()
	var texts []string
	for _, s := range statuses {
		text := s.Name
		if s.Ready {
			text += " ready"
		}
		require.NotNil(t, s.Started, s.Name)
		if *s.Started {
			text += " started"
		}
		switch {
		case s.State.Running != nil:
			require.False(t, s.State.Running.StartedAt.IsZero(), s.Name)
			text += " running"
		case s.State.Terminated != nil:
			require.Equal(t, s.ContainerID, s.State.Terminated.ContainerID, s.Name)
			require.False(t, s.State.Terminated.StartedAt.IsZero(), s.Name)
			require.False(t, s.State.Terminated.FinishedAt.Before(&s.State.Terminated.StartedAt), s.Name)
			text += fmt.Sprintf(" terminated %s %d", s.State.Terminated.Reason, s.State.Terminated.ExitCode)
		}
		require.Regexp(t, `^simulated://[0-9a-f]{64}$`, s.ContainerID, s.Name)
		texts = append(texts, text)
	}
	return texts
}

// allTrue are the conditions of a Pod that is ready.
var allTrue = []string{"ContainersReady=True", "Initialized=True", "PodReadyToStartContainers=True", "PodScheduled=True", "Ready=True"}

var (
	always  = corev1.ContainerRestartPolicyAlways
	setup   = corev1.Container{Name: "setup", Image: "simulated:1"}
	sidecar = corev1.Container{Name: "sidecar", Image: "simulated:1", RestartPolicy: &always}
)

func TestKubeletReportsARunningPod(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	spec := podSpec()
	spec.InitContainers = []corev1.Container{setup, sidecar}
	// A kubelet reports the containers sorted by name, and the init containers in the order of the spec.
	spec.Containers = append(spec.Containers, corev1.Container{Name: "admin", Image: "simulated:1"})
	pod := e.createPod(t, "running", spec)
	require.Equal(t, allTrue, conditionsOf(t, pod))
	require.Equal(t, []string{"setup ready terminated Completed 0", "sidecar ready started running"}, containersOf(t, pod.Status.InitContainerStatuses))
	require.Equal(t, []string{"admin ready started running", "main ready started running"}, containersOf(t, pod.Status.ContainerStatuses))
	require.Equal(t, corev1.PodQOSBestEffort, pod.Status.QOSClass)
	require.NotNil(t, pod.Status.StartTime)
	require.Equal(t, []corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs)
	require.Equal(t, []corev1.HostIP{{IP: pod.Status.HostIP}}, pod.Status.HostIPs)
	require.NotEmpty(t, pod.Status.HostIP)
	require.NotEqual(t, pod.Status.HostIP, pod.Status.PodIP)
}

func TestKubeletGivesAPodOfTheHostNetworkTheAddressOfItsNode(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	spec := podSpec()
	spec.HostNetwork = true
	pod := e.createPod(t, "host", spec)
	require.Equal(t, allTrue, conditionsOf(t, pod))
	require.NotEmpty(t, pod.Status.HostIP)
	require.Equal(t, pod.Status.HostIP, pod.Status.PodIP)
	require.Equal(t, []corev1.PodIP{{IP: pod.Status.HostIP}}, pod.Status.PodIPs)
}

func TestKubeletWaitsForReadinessGates(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	pods := e.client.CoreV1().Pods(e.namespace)
	spec := podSpec()
	spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/in-service"}}
	_, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gated"}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	running := func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }
	pod := waitUntil(t, pods, "gated", "Running", running)
	require.Equal(t, []string{
		"ContainersReady=True", "Initialized=True", "PodReadyToStartContainers=True", "PodScheduled=True",
		`Ready=False ReadinessGatesNotReady: corresponding condition of pod readiness gate "example.com/in-service" does not exist.`,
	}, conditionsOf(t, pod))

	setGate := func(status corev1.ConditionStatus) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"status": {"conditions": [{"type": "example.com/in-service", "status": %q, "lastTransitionTime": "2001-01-01T00:00:00Z"}]}}`, status)
		_, err := pods.Patch(t.Context(), "gated", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	setGate(corev1.ConditionTrue)
	pod = waitUntil(t, pods, "gated", "Ready", podReady)
	require.Equal(t, append(slices.Clone(allTrue), "example.com/in-service=True"), conditionsOf(t, pod))

	setGate(corev1.ConditionFalse)
	pod = waitUntil(t, pods, "gated", "not Ready", func(pod *corev1.Pod) bool { return !podReady(pod) })
	require.Contains(t, conditionsOf(t, pod), `Ready=False ReadinessGatesNotReady: the status of pod readiness gate "example.com/in-service" is not "True", but False`)
}

// There are no probes. What they would report is written to the container's status, and the kubelet derives the conditions.
func TestKubeletReportsAContainerThatIsNotReady(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	pods := e.client.CoreV1().Pods(e.namespace)
	e.createPod(t, "web", podSpec())
	setReady := func(ready bool) {
		t.Helper()
		patch := fmt.Appendf(nil, `[{"op": "replace", "path": "/status/containerStatuses/0/ready", "value": %t}]`, ready)
		_, err := pods.Patch(t.Context(), "web", types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	setReady(false)
	pod := waitUntil(t, pods, "web", "not Ready", func(pod *corev1.Pod) bool { return !podReady(pod) })
	require.Equal(t, []string{
		"ContainersReady=False ContainersNotReady: containers with unready status: [main]", "Initialized=True",
		"PodReadyToStartContainers=True", "PodScheduled=True", "Ready=False ContainersNotReady: containers with unready status: [main]",
	}, conditionsOf(t, pod))
	require.Equal(t, []string{"main started running"}, containersOf(t, pod.Status.ContainerStatuses))

	setReady(true)
	pod = waitUntil(t, pods, "web", "Ready", podReady)
	require.Equal(t, allTrue, conditionsOf(t, pod))
}

// As the node lifecycle controller does when a Node is no longer ready, and other controllers must not.
func TestKubeletOverwritesTheReadyConditionOfAnother(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	pods := e.client.CoreV1().Pods(e.namespace)
	e.createPod(t, "web", podSpec())
	patch := []byte(`{"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Other", "message": "other"}]}}`)
	_, err := pods.Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	pod := waitUntil(t, pods, "web", "Ready again", podReady)
	require.Equal(t, allTrue, conditionsOf(t, pod))
}

func TestKubeletRestartsAContainerWhoseImageHasChanged(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	pods := e.client.CoreV1().Pods(e.namespace)
	before := e.createPod(t, "web", podSpec())
	patch := []byte(`{"spec": {"containers": [{"name": "main", "image": "simulated:2"}]}}`)
	_, err := pods.Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	pod := waitUntil(t, pods, "web", "observed", func(pod *corev1.Pod) bool { return pod.Status.ObservedGeneration == 2 })
	require.Equal(t, allTrue, conditionsOf(t, pod))
	require.Equal(t, []string{"main ready started running"}, containersOf(t, pod.Status.ContainerStatuses))
	status, first := pod.Status.ContainerStatuses[0], before.Status.ContainerStatuses[0]
	require.Equal(t, "simulated:2", status.Image)
	require.EqualValues(t, 1, status.RestartCount)
	require.NotEqual(t, first.ContainerID, status.ContainerID)
	require.NotNil(t, status.LastTerminationState.Terminated)
	require.Equal(t, first.ContainerID, status.LastTerminationState.Terminated.ContainerID)
	require.Equal(t, before.Status.PodIPs, pod.Status.PodIPs)
}

func TestKubeletReportsAPodThatHasCompleted(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	spec := jobSpec(1)
	spec.Template.Spec.InitContainers = []corev1.Container{setup, sidecar}
	_, err := e.client.BatchV1().Jobs(e.namespace).Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	var pod *corev1.Pod
	eventually(t, func(ctx context.Context) error {
		pods, err := e.client.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("no Pod has succeeded: %v", pods.Items)
		}
		pod = &pods.Items[0]
		return nil
	})
	require.Equal(t, []string{
		"ContainersReady=False PodCompleted", "Initialized=True PodCompleted",
		"PodReadyToStartContainers=False PodSandboxNotReady: pod sandbox is not ready",
		"PodScheduled=True", "Ready=False PodCompleted",
	}, conditionsOf(t, pod))
	require.Equal(t, []string{"setup ready terminated Completed 0", "sidecar terminated Error 143"}, containersOf(t, pod.Status.InitContainerStatuses))
	require.Equal(t, []string{"main terminated Completed 0"}, containersOf(t, pod.Status.ContainerStatuses))
	require.NotEmpty(t, pod.Status.PodIP)
}

// What the kubelet reports of a Pod whose containers it has stopped can only be seen if a finalizer keeps the Pod.
func TestKubeletReportsADeletedPodThatAFinalizerKeeps(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	pods := e.client.CoreV1().Pods(e.namespace)
	spec := podSpec()
	spec.InitContainers = []corev1.Container{setup, sidecar}
	created, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"example.com/keep"}}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	waitUntil(t, pods, "kept", "Ready", podReady)
	require.NoError(t, pods.Delete(t.Context(), "kept", metav1.DeleteOptions{}))

	seen, last := e.watchPod(t, created, func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil && *pod.DeletionGracePeriodSeconds == 0
	})
	require.Equal(t, []string{
		"created", "bound", "generation 1 observed, Running, ready", "to be deleted within 30 s",
		"generation 2 observed, Failed", "to be deleted within 0 s",
	}, seen)
	require.Equal(t, []string{
		"ContainersReady=False PodFailed", "Initialized=True",
		"PodReadyToStartContainers=False PodSandboxNotReady: pod sandbox is not ready",
		"PodScheduled=True", "Ready=False PodFailed",
	}, conditionsOf(t, last))
	require.Equal(t, []string{"setup ready terminated Completed 0", "sidecar terminated Error 143"}, containersOf(t, last.Status.InitContainerStatuses))
	require.Equal(t, []string{"main terminated Error 143"}, containersOf(t, last.Status.ContainerStatuses))

	_, err = pods.Patch(t.Context(), "kept", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	waitForDeletion(t, pods, "kept")
}

func TestKubeletWaitsForAPodThatIsHeld(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	pods := e.client.CoreV1().Pods(e.namespace)
	created, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "slow", Annotations: map[string]string{machine.HoldAnnotation: ""}}, Spec: podSpec()}, metav1.CreateOptions{})
	require.NoError(t, err)
	waitUntil(t, pods, "slow", "Ready", podReady)
	require.NoError(t, pods.Delete(t.Context(), "slow", metav1.DeleteOptions{}))
	seen, last := e.watchPod(t, created, func(pod *corev1.Pod) bool { return pod.Status.ObservedGeneration == 2 })
	require.Equal(t, []string{"created", "bound", "generation 1 observed, Running, ready", "to be deleted within 30 s", "generation 2 observed"}, seen)
	require.Equal(t, allTrue, conditionsOf(t, last))

	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: null}}}`, machine.HoldAnnotation)
	_, err = pods.Patch(t.Context(), "slow", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	waitForDeletion(t, pods, "slow")
}

// Each change of a Pod costs the API server and every watcher of Pods, so the kubelet writes as few as it can.
func TestKubeletWritesOncePerPhase(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	pods := e.client.CoreV1().Pods(e.namespace)
	created, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: podSpec()}, metav1.CreateOptions{})
	require.NoError(t, err)
	waitUntil(t, pods, "web", "Ready", podReady)
	require.NoError(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	seen, _ := e.watchPod(t, created, func(*corev1.Pod) bool { return false })
	require.Equal(t, []string{"created", "bound", "generation 1 observed, Running, ready", "to be deleted within 30 s", "to be deleted within 0 s", "deleted"}, seen)
}

// watchPod returns what has happened to a Pod since it was created, until done returns true or the Pod is deleted: the first
// of each of its states, one per write.
func (e *testEnv) watchPod(t *testing.T, created *corev1.Pod, done func(*corev1.Pod) bool) (seen []string, last *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	pods := cache.NewListWatchFromClient(e.client.CoreV1().RESTClient(), "pods", e.namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, created.Name))
	before := created
	seen = []string{"created"}
	_, err := watchtools.Until(ctx, created.ResourceVersion, pods, func(event watch.Event) (bool, error) {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return false, fmt.Errorf("unexpected watch event: %v", event)
		}
		if event.Type == watch.Deleted {
			seen = append(seen, "deleted")
			return true, nil
		}
		seen = append(seen, podChange(before, pod))
		before, last = pod, pod
		return done(pod), nil
	})
	require.NoError(t, err, "seen so far: %v", seen)
	return seen, last
}

// podChange says what one write has changed.
func podChange(before, after *corev1.Pod) string {
	var changes []string
	if before.Spec.NodeName != after.Spec.NodeName {
		changes = append(changes, "bound")
	}
	if grace := after.DeletionGracePeriodSeconds; grace != nil && (before.DeletionGracePeriodSeconds == nil || *before.DeletionGracePeriodSeconds != *grace) {
		changes = append(changes, fmt.Sprintf("to be deleted within %d s", *grace))
	}
	if before.Status.ObservedGeneration != after.Status.ObservedGeneration {
		changes = append(changes, fmt.Sprintf("generation %d observed", after.Status.ObservedGeneration))
	}
	if before.Status.Phase != after.Status.Phase {
		changes = append(changes, string(after.Status.Phase))
	}
	if podReady(after) && !podReady(before) {
		changes = append(changes, "ready")
	}
	return strings.Join(changes, ", ")
}

package nodes

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"

	"example.com/controllers/harness/machine"
)

var (
	always  = corev1.ContainerRestartPolicyAlways
	setup   = corev1.Container{Name: "setup", Image: "setup:1"}
	sidecar = corev1.Container{Name: "sidecar", Image: "sidecar:1", RestartPolicy: &always}
)

// newPod returns a Pod that has just been bound.
func newPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "uid", Generation: 1, ResourceVersion: "1"},
		Spec: corev1.PodSpec{
			NodeName:      "node-0",
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "main", Image: "main:1"}},
		},
		Status: corev1.PodStatus{
			Phase:      corev1.PodPending,
			QOSClass:   corev1.PodQOSBestEffort,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func initContainers(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{setup, sidecar} }
func ofJob(pod *corev1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job"}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
}
func finalizer(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/keep"} }
func hold(pod *corev1.Pod) {
	pod.Annotations = map[string]string{machine.HoldAnnotation: ""}
}
func deleted(pod *corev1.Pod) {
	pod.Generation++
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.Now()), new(int64(30))
}

// report writes statuses to pod, one every 10 s of a bubble's time, until there is nothing left to write, and returns how often it
// wrote. After each write, the kubelet's own status manager must have nothing to change.
func report(t *testing.T, pod *corev1.Pod) (writes int) {
	t.Helper()
	for {
		time.Sleep(10 * time.Second)
		before := pod.DeepCopy()
		patch, err := statusPatch(metav1.Now(), pod, []string{"100.64.0.1"}, []string{"10.244.0.1"})
		require.NoError(t, err)
		data, err := json.Marshal(pod)
		require.NoError(t, err)
		data, err = strategicpatch.StrategicMergePatch(data, patch, pod)
		require.NoError(t, err)
		*pod = corev1.Pod{}
		require.NoError(t, json.Unmarshal(data, pod))
		if string(patch) == fmt.Sprintf(`{"metadata":{"resourceVersion":%q}}`, before.ResourceVersion) {
			require.Equal(t, text(t, before.Status), text(t, pod.Status))
			return writes
		}
		writes++
		require.Less(t, writes, 5, "it does not come to an end; the last patch: %s", patch)
		require.Equal(t, text(t, kubelet().set(before, pod.Status)), text(t, pod.Status), "what the kubelet makes of it, and the status")
	}
}

func text(t *testing.T, status corev1.PodStatus) string {
	t.Helper()
	data, err := json.MarshalIndent(status, "", " ")
	require.NoError(t, err)
	return string(data)
}

// A manager is the part of a kubelet that keeps the status of Pods and writes it to the API server.
type manager struct {
	kubeletstatus.Manager
}

func kubelet() manager {
	return manager{kubeletstatus.NewManager(fake.NewClientset(), kubeletpod.NewBasicPodManager(), allStopped{}, kubeletutil.NewPodStartupLatencyTracker())}
}

// allStopped says that no container runs, as after a Pod's end.
type allStopped struct{}

func (allStopped) PodCouldHaveRunningContainers(*corev1.Pod) bool { return false }

// set returns what the kubelet makes of a status.
func (m manager) set(pod *corev1.Pod, status corev1.PodStatus) corev1.PodStatus {
	after, _ := m.SetPodStatus(klog.Background(), pod, status)
	return after
}

// terminate returns what the kubelet makes of the status of a Pod whose containers have been stopped.
func (m manager) terminate(pod *corev1.Pod, status corev1.PodStatus) corev1.PodStatus {
	m.set(pod, status)
	m.TerminatePod(klog.Background(), pod)
	after, _ := m.GetPodStatus(pod.UID)
	return after
}

func conditionTexts(pod *corev1.Pod) (texts []string) {
	for _, c := range pod.Status.Conditions {
		text := fmt.Sprintf("%s=%s", c.Type, c.Status)
		if c.Reason != "" || c.Message != "" {
			text += fmt.Sprintf(" %s: %s", c.Reason, c.Message)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return texts
}

func containerTexts(pod *corev1.Pod) (texts []string) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		text := fmt.Sprintf("%s ready=%t started=%t", s.Name, s.Ready, *s.Started)
		switch {
		case s.State.Running != nil:
			text += " running"
		case s.State.Waiting != nil:
			text += " waiting " + s.State.Waiting.Reason
		case s.State.Terminated != nil:
			text += fmt.Sprintf(" terminated %s %d", s.State.Terminated.Reason, s.State.Terminated.ExitCode)
		}
		texts = append(texts, text)
	}
	return texts
}

func TestReports(t *testing.T) {
	const sandboxGone = "PodReadyToStartContainers=False PodSandboxNotReady: pod sandbox is not ready"
	ready := []string{"ContainersReady=True", "Initialized=True", "PodReadyToStartContainers=True", "PodScheduled=True", "Ready=True"}
	failed := []string{"ContainersReady=False PodFailed: ", "Initialized=True", sandboxGone, "PodScheduled=True", "Ready=False PodFailed: "}
	completed := []string{"ContainersReady=False PodCompleted: ", "Initialized=True PodCompleted: ", sandboxGone, "PodScheduled=True", "Ready=False PodCompleted: "}
	for name, test := range map[string]struct {
		pod        []func(*corev1.Pod)
		then       func(*corev1.Pod) // what others change when the kubelet has reported all
		phase      corev1.PodPhase
		conditions []string
		containers []string
		writes     int // in all
	}{
		"a Pod": {pod: nil, phase: corev1.PodRunning, conditions: ready, containers: []string{"main ready=true started=true running"}, writes: 1},
		"init containers": {
			pod: []func(*corev1.Pod){initContainers}, phase: corev1.PodRunning, conditions: ready, writes: 1,
			containers: []string{"setup ready=true started=false terminated Completed 0", "sidecar ready=true started=true running", "main ready=true started=true running"},
		},
		"of a Job": {pod: []func(*corev1.Pod){ofJob}, phase: corev1.PodSucceeded, conditions: completed, containers: []string{"main ready=false started=false terminated Completed 0"}, writes: 2},
		"of a Job, with a sidecar": {
			pod: []func(*corev1.Pod){ofJob, initContainers}, phase: corev1.PodSucceeded, conditions: completed, writes: 2,
			containers: []string{"setup ready=true started=false terminated Completed 0", "sidecar ready=false started=false terminated Error 143", "main ready=false started=false terminated Completed 0"},
		},
		"a sidecar that is not ready": {
			pod:   []func(*corev1.Pod){initContainers},
			then:  func(pod *corev1.Pod) { pod.Status.InitContainerStatuses[1].Ready = false },
			phase: corev1.PodRunning, writes: 2,
			conditions: []string{
				"ContainersReady=False ContainersNotReady: containers with unready status: [sidecar]", "Initialized=True",
				"PodReadyToStartContainers=True", "PodScheduled=True", "Ready=False ContainersNotReady: containers with unready status: [sidecar]",
			},
			containers: []string{"setup ready=true started=false terminated Completed 0", "sidecar ready=false started=true running", "main ready=true started=true running"},
		},
		"deleted": {
			pod: []func(*corev1.Pod){finalizer, initContainers}, then: deleted, phase: corev1.PodFailed, conditions: failed, writes: 2,
			containers: []string{"setup ready=true started=false terminated Completed 0", "sidecar ready=false started=false terminated Error 143", "main ready=false started=false terminated Error 143"},
		},
		"deleted, and takes its time": {
			pod: []func(*corev1.Pod){hold}, then: deleted, phase: corev1.PodRunning, conditions: ready, writes: 2,
			containers: []string{"main ready=true started=true running"},
		},
		"deleted before it has run": {
			pod: []func(*corev1.Pod){finalizer, deleted}, phase: corev1.PodFailed, conditions: failed, writes: 1,
			containers: []string{"main ready=false started=false terminated ContainerStatusUnknown 137"},
		},
		"failed, as somebody else says": {
			pod: nil, then: func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Other" },
			phase: corev1.PodFailed, conditions: failed, writes: 2,
			containers: []string{"main ready=false started=false terminated Error 143"},
		},
		"succeeded, as somebody else says": {
			pod: nil, then: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
			phase: corev1.PodSucceeded, conditions: completed, writes: 2,
			containers: []string{"main ready=false started=false terminated Completed 0"},
		},
		"a spec that has changed": {
			pod: nil, then: func(pod *corev1.Pod) { pod.Generation++ },
			phase: corev1.PodRunning, conditions: ready, containers: []string{"main ready=true started=true running"}, writes: 2,
		},
		"a condition of another's": {
			pod: nil,
			then: func(pod *corev1.Pod) {
				pod.Status.Conditions = slices.Insert(pod.Status.Conditions, 1, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
			},
			phase: corev1.PodRunning, conditions: slices.Insert(slices.Clone(ready), 1, "DisruptionTarget=True"), containers: []string{"main ready=true started=true running"}, writes: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := newPod(test.pod...)
				writes := report(t, pod)
				if test.then != nil {
					test.then(pod)
					writes += report(t, pod)
				}
				require.Equal(t, test.phase, pod.Status.Phase)
				require.Equal(t, test.conditions, conditionTexts(pod))
				require.Equal(t, test.containers, containerTexts(pod))
				require.Equal(t, test.writes, writes)
				require.Equal(t, pod.Generation, pod.Status.ObservedGeneration)
			})
		})
	}
}

// A Pod that is deleted after it was bound and before it was started has containers that have never run.
func TestPodThatHasNeverRunEndsAsOnAKubelet(t *testing.T) {
	for name, changes := range map[string][]func(*corev1.Pod){
		"containers":      {finalizer, deleted},
		"init containers": {finalizer, deleted, initContainers},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := newPod(changes...)
				bound := pod.DeepCopy()
				report(t, pod)
				waiting := pod.Status.DeepCopy()
				bound.Status.Conditions = waiting.Conditions // whose times stay
				waiting.Phase = corev1.PodPending
				reason := "ContainerCreating"
				if len(pod.Spec.InitContainers) > 0 {
					reason = "PodInitializing"
				}
				waiting.InitContainerStatuses = waitingContainers(pod.Spec.InitContainers, reason)
				waiting.ContainerStatuses = waitingContainers(pod.Spec.Containers, reason)
				require.Equal(t, text(t, kubelet().terminate(bound, *waiting)), text(t, pod.Status))
			})
		})
	}
}

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bound := time.Now()
		pod := newPod(ofJob)
		report(t, pod)
		started, finished := metav1.NewTime(bound.Add(10*time.Second)), metav1.NewTime(bound.Add(20*time.Second))
		end := pod.Status.ContainerStatuses[0].State.Terminated
		require.True(t, started.Equal(pod.Status.StartTime))
		require.True(t, started.Equal(&end.StartedAt))
		require.True(t, finished.Equal(&end.FinishedAt))
		for _, condition := range pod.Status.Conditions {
			want := map[corev1.PodConditionType]time.Time{corev1.PodScheduled: bound, corev1.PodInitialized: started.Time}[condition.Type]
			if want.IsZero() {
				want = finished.Time
			}
			require.True(t, want.Equal(condition.LastTransitionTime.Time), "%s: %s", condition.Type, condition.LastTransitionTime)
		}
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod()
		report(t, pod)
		first := pod.Status.ContainerStatuses[0]
		pod.Spec.Containers[0].Image = "main:2"
		require.Equal(t, 1, report(t, pod))
		second := pod.Status.ContainerStatuses[0]
		require.Equal(t, "main:2", second.Image)
		require.EqualValues(t, 1, second.RestartCount)
		require.NotEqual(t, first.ContainerID, second.ContainerID)
		require.Equal(t, first.ContainerID, second.LastTerminationState.Terminated.ContainerID)
		require.EqualValues(t, 143, second.LastTerminationState.Terminated.ExitCode)
		require.NotNil(t, second.State.Running)
	})
}

func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newPod()
		report(t, pod)
		before := pod.Status.ContainerStatuses[0]
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		pod.Generation++
		require.Equal(t, 1, report(t, pod))
		after := pod.Status.ContainerStatuses[0]
		require.Equal(t, "2", after.Resources.Requests.Cpu().String())
		require.Equal(t, "2", after.AllocatedResources.Cpu().String())
		require.Equal(t, before.ContainerID, after.ContainerID)
	})
}

func TestAddresses(t *testing.T) {
	pod := newPod()
	pod.Status = nextStatus(metav1.Now(), pod, []string{"100.64.0.1", "fd00::1"}, []string{"10.244.0.1", "fd01::1"})
	require.Equal(t, "100.64.0.1", pod.Status.HostIP)
	require.Equal(t, []corev1.HostIP{{IP: "100.64.0.1"}, {IP: "fd00::1"}}, pod.Status.HostIPs)
	require.Equal(t, "10.244.0.1", pod.Status.PodIP)
	require.Equal(t, []corev1.PodIP{{IP: "10.244.0.1"}, {IP: "fd01::1"}}, pod.Status.PodIPs)
	require.Equal(t, "10.244.0.1", nextStatus(metav1.Now(), pod, nil, []string{"10.244.0.2"}).PodIP, "it keeps its address")
}

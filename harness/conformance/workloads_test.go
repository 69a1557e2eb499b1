package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// webLabels are the labels of the Pods of every workload in these tests; webSelector selects them.
var webLabels = map[string]string{"app": "web"}

const webSelector = "app=web"

func template(spec corev1.PodSpec) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: webLabels}, Spec: spec}
}

func deployment(replicas int32, spec corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: webLabels},
			Template: template(spec),
		},
	}
}

// deploy creates Deployment "web" and waits until it is complete.
func (e *testEnv) deploy(t *testing.T, replicas int32, spec corev1.PodSpec) *appsv1.Deployment {
	t.Helper()
	_, err := e.client.AppsV1().Deployments(e.namespace).Create(t.Context(), deployment(replicas, spec), metav1.CreateOptions{})
	require.NoError(t, err)
	return e.waitForRollout(t, replicas)
}

// waitForRollout waits until Deployment "web" has that many Pods, all of them available and up to date.
func (e *testEnv) waitForRollout(t *testing.T, replicas int32) *appsv1.Deployment {
	t.Helper()
	return waitUntil(t, e.client.AppsV1().Deployments(e.namespace), "web", fmt.Sprintf("complete with %d replicas", replicas), func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration >= d.Generation && d.Status.Replicas == replicas &&
			d.Status.UpdatedReplicas == replicas && d.Status.AvailableReplicas == replicas && d.Status.UnavailableReplicas == 0
	})
}

func TestDeploymentScalesUpAndDown(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	e.deploy(t, 2, podSpec())
	deployments := e.client.AppsV1().Deployments(e.namespace)
	for _, replicas := range []int32{5, 1} {
		scale, err := deployments.GetScale(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		scale.Spec.Replicas = replicas
		_, err = deployments.UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{})
		require.NoError(t, err)
		e.waitForRollout(t, replicas)

		pods, err := e.livePods(t.Context(), webSelector)
		require.NoError(t, err)
		require.Len(t, pods, int(replicas))
		for _, pod := range pods {
			require.True(t, podReady(&pod), "%v", pod.Status)
			require.NotEmpty(t, pod.Spec.NodeName)
			require.NotEmpty(t, pod.Status.PodIP)
		}
	}
}

func TestDeploymentRollsOutANewImage(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	e.deploy(t, 3, podSpec())
	patch := []byte(`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "simulated:2"}]`)
	_, err := e.client.AppsV1().Deployments(e.namespace).Patch(t.Context(), "web", types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	e.waitForRollout(t, 3)

	pods, err := e.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	require.Len(t, pods, 3)
	for _, pod := range pods {
		require.Equal(t, "simulated:2", pod.Spec.Containers[0].Image)
	}
	sets, err := e.client.AppsV1().ReplicaSets(e.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	replicas := map[string]int32{}
	for _, set := range sets.Items {
		replicas[set.Spec.Template.Spec.Containers[0].Image] = *set.Spec.Replicas
	}
	require.Equal(t, map[string]int32{"simulated:1": 0, "simulated:2": 3}, replicas)
}

func TestDeletedPodOfDeploymentIsReplaced(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	e.deploy(t, 2, podSpec())
	before, err := e.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	deleted := before[0].Name
	require.NoError(t, e.client.CoreV1().Pods(e.namespace).Delete(t.Context(), deleted, metav1.DeleteOptions{}))
	waitForDeletion(t, e.client.CoreV1().Pods(e.namespace), deleted)
	e.waitForLivePods(t, 2) // before that, the status of the Deployment may be the old one
	e.waitForRollout(t, 2)
}

// waitForLivePods waits until there are that many Pods, all of them Ready, and returns them.
func (e *testEnv) waitForLivePods(t *testing.T, count int) (pods []corev1.Pod) {
	t.Helper()
	eventually(t, func(ctx context.Context) (err error) {
		if pods, err = e.livePods(ctx, webSelector); err != nil {
			return err
		}
		ready := 0
		for _, pod := range pods {
			if podReady(&pod) {
				ready++
			}
		}
		if len(pods) != count || ready != count {
			return fmt.Errorf("of %d Pods, %d are Ready; want %d", len(pods), ready, count)
		}
		return nil
	})
	return pods
}

func TestDaemonSetFollowsMachines(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	first := e.addMachine(t)
	_, err := e.client.AppsV1().DaemonSets(e.namespace).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: webLabels},
			Template: template(e.ownPodSpec()),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	waitForPodsOn := func(machines ...string) {
		t.Helper()
		slices.Sort(machines)
		eventually(t, func(ctx context.Context) error {
			pods, err := e.livePods(ctx, webSelector)
			if err != nil {
				return err
			}
			var nodes []string
			for _, pod := range pods {
				if podReady(&pod) {
					nodes = append(nodes, pod.Spec.NodeName)
				}
			}
			if slices.Sort(nodes); !slices.Equal(nodes, machines) {
				return fmt.Errorf("the Ready Pods are on %v, want %v", nodes, machines)
			}
			return nil
		})
	}
	waitForPodsOn(first)
	second := e.addMachine(t)
	waitForPodsOn(first, second)

	patch := fmt.Appendf(nil, `{"metadata": {"labels": {%q: null}}}`, ownKey)
	_, err = e.client.CoreV1().Nodes().Patch(t.Context(), first, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	waitForPodsOn(second)
}

// createStatefulSet creates StatefulSet "web" with three replicas.
func (e *testEnv) createStatefulSet(t *testing.T) {
	t.Helper()
	three := int32(3)
	_, err := e.client.AppsV1().StatefulSets(e.namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &three,
			Selector: &metav1.LabelSelector{MatchLabels: webLabels},
			Template: template(podSpec()),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// Each Pod is Ready before the StatefulSet controller creates the next one.
func TestStatefulSetCreatesItsPodsInOrder(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	list, err := e.client.CoreV1().Pods(e.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	e.createStatefulSet(t)
	var order []string
	ready := map[string]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	pods := cache.NewFilteredListWatchFromClient(e.client.CoreV1().RESTClient(), "pods", e.namespace, func(*metav1.ListOptions) {})
	_, err = watchtools.Until(ctx, list.ResourceVersion, pods, func(event watch.Event) (bool, error) {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return false, fmt.Errorf("unexpected watch event: %v", event)
		}
		if event.Type == watch.Added {
			if len(order) != len(ready) {
				return false, fmt.Errorf("%s was created when of %v only %v were Ready", pod.Name, order, ready)
			}
			order = append(order, pod.Name)
		}
		if podReady(pod) {
			ready[pod.Name] = true
		}
		return len(ready) == 3, nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"web-0", "web-1", "web-2"}, order)
}

func TestDeletedPodOfStatefulSetIsRecreatedWithItsName(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	e.createStatefulSet(t)
	pods := e.client.CoreV1().Pods(e.namespace)
	waitUntil(t, pods, "web-2", "Ready", podReady)
	first, err := pods.Get(t.Context(), "web-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, pods.Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	waitUntil(t, pods, "web-1", "recreated and Ready", func(pod *corev1.Pod) bool { return pod.UID != first.UID && podReady(pod) })
	waitUntil(t, e.client.AppsV1().StatefulSets(e.namespace), "web", "complete", func(set *appsv1.StatefulSet) bool {
		return set.Status.ReadyReplicas == 3
	})
}

func jobSpec(completions int32) batchv1.JobSpec {
	spec := podSpec()
	spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{Completions: &completions, Parallelism: &completions, Template: template(spec)}
}

func TestJobCompletes(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	jobs := e.client.BatchV1().Jobs(e.namespace)
	_, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: jobSpec(3)}, metav1.CreateOptions{})
	require.NoError(t, err)
	job := waitUntil(t, jobs, "work", "complete", func(job *batchv1.Job) bool {
		return slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
			return condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue
		})
	})
	require.EqualValues(t, 3, job.Status.Succeeded)
	require.NotNil(t, job.Status.CompletionTime)
	pods, err := e.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	require.Len(t, pods, 3)
	for _, pod := range pods {
		require.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
	}
}

func TestFinishedJobIsDeletedAfterItsTTL(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	jobs := e.client.BatchV1().Jobs(e.namespace)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: jobSpec(1)}
	job.Spec.TTLSecondsAfterFinished = new(int32)
	_, err := jobs.Create(t.Context(), job, metav1.CreateOptions{})
	require.NoError(t, err)
	waitForDeletion(t, jobs, "work")
}

// So as not to wait for the next full minute, the test sets lastScheduleTime to two minutes ago. The CronJob then has a
// missed run to start.
func TestCronJobCreatesJobs(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	cronJobs := e.client.BatchV1().CronJobs(e.namespace)
	suspend := true
	cron, err := cronJobs.Create(t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "minutely"},
		Spec: batchv1.CronJobSpec{
			Schedule:    "* * * * *",
			Suspend:     &suspend,
			JobTemplate: batchv1.JobTemplateSpec{Spec: jobSpec(1)},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	cron.Status.LastScheduleTime = &metav1.Time{Time: time.Now().Add(-2 * time.Minute)}
	_, err = cronJobs.UpdateStatus(t.Context(), cron, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = cronJobs.Patch(t.Context(), "minutely", types.MergePatchType, []byte(`{"spec": {"suspend": false}}`), metav1.PatchOptions{})
	require.NoError(t, err)

	eventually(t, func(ctx context.Context) error {
		jobs, err := e.client.BatchV1().Jobs(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, job := range jobs.Items {
			if metav1.IsControlledBy(&job, cron) && job.Status.Succeeded == 1 {
				return nil
			}
		}
		return fmt.Errorf("none of %d Jobs is owned by the CronJob and has succeeded", len(jobs.Items))
	})
}

func TestServiceGetsReadyPodsAsEndpoints(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	e.deploy(t, 2, podSpec())
	_, err := e.client.CoreV1().Services(e.namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: webLabels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	pods, err := e.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	var podIPs []string
	for _, pod := range pods {
		podIPs = append(podIPs, pod.Status.PodIP)
	}
	slices.Sort(podIPs)
	eventually(t, func(ctx context.Context) error {
		found, err := e.client.DiscoveryV1().EndpointSlices(e.namespace).List(ctx, metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=web",
		})
		if err != nil {
			return err
		}
		var ready []string
		for _, slice := range found.Items {
			for _, endpoint := range slice.Endpoints {
				if *endpoint.Conditions.Ready {
					ready = append(ready, endpoint.Addresses...)
				}
			}
		}
		if slices.Sort(ready); !slices.Equal(ready, podIPs) {
			return fmt.Errorf("ready endpoints are %v, want %v", ready, podIPs)
		}
		return nil
	})
}

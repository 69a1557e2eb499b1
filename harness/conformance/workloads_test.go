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

// webLabels are those of the Pods of each workload here.
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

// deploy creates a Deployment and waits until its Pods run.
func (w *world) deploy(t *testing.T, replicas int32, spec corev1.PodSpec) *appsv1.Deployment {
	t.Helper()
	_, err := w.client.AppsV1().Deployments(w.namespace).Create(t.Context(), deployment(replicas, spec), metav1.CreateOptions{})
	require.NoError(t, err)
	return w.settles(t, replicas)
}

// settles waits until the Deployment has so many Pods, all of them ready and up to date.
func (w *world) settles(t *testing.T, replicas int32) *appsv1.Deployment {
	t.Helper()
	return becomes(t, w.client.AppsV1().Deployments(w.namespace), "web", fmt.Sprintf("complete with %d replicas", replicas), func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration >= d.Generation && d.Status.Replicas == replicas &&
			d.Status.UpdatedReplicas == replicas && d.Status.AvailableReplicas == replicas && d.Status.UnavailableReplicas == 0
	})
}

func TestDeploymentScales(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deploy(t, 2, podSpec())
	deployments := w.client.AppsV1().Deployments(w.namespace)
	for _, replicas := range []int32{5, 1} {
		scale, err := deployments.GetScale(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		scale.Spec.Replicas = replicas
		_, err = deployments.UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{})
		require.NoError(t, err)
		w.settles(t, replicas)

		pods, err := w.livePods(t.Context(), webSelector)
		require.NoError(t, err)
		require.Len(t, pods, int(replicas))
		for _, pod := range pods {
			require.True(t, podReady(&pod), "%v", pod.Status)
			require.NotEmpty(t, pod.Spec.NodeName)
			require.NotEmpty(t, pod.Status.PodIP)
		}
	}
}

func TestDeploymentRollsOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deploy(t, 3, podSpec())
	patch := []byte(`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "simulated:2"}]`)
	_, err := w.client.AppsV1().Deployments(w.namespace).Patch(t.Context(), "web", types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	w.settles(t, 3)

	pods, err := w.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	require.Len(t, pods, 3)
	for _, pod := range pods {
		require.Equal(t, "simulated:2", pod.Spec.Containers[0].Image)
	}
	sets, err := w.client.AppsV1().ReplicaSets(w.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	replicas := map[string]int32{}
	for _, set := range sets.Items {
		replicas[set.Spec.Template.Spec.Containers[0].Image] = *set.Spec.Replicas
	}
	require.Equal(t, map[string]int32{"simulated:1": 0, "simulated:2": 3}, replicas)
}

func TestDeletedPodOfDeploymentIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deploy(t, 2, podSpec())
	before, err := w.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	victim := before[0].Name
	require.NoError(t, w.client.CoreV1().Pods(w.namespace).Delete(t.Context(), victim, metav1.DeleteOptions{}))
	isGone(t, w.client.CoreV1().Pods(w.namespace), victim)
	w.settles(t, 2)
	after, err := w.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	require.Len(t, after, 2)
}

func TestDaemonSetFollowsMachines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.addMachine(t)
	_, err := w.client.AppsV1().DaemonSets(w.namespace).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: webLabels},
			Template: template(w.ownPodSpec()),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	runsOn := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		eventually(t, func(ctx context.Context) error {
			pods, err := w.livePods(ctx, webSelector)
			if err != nil {
				return err
			}
			var nodes []string
			for _, pod := range pods {
				if podReady(&pod) {
					nodes = append(nodes, pod.Spec.NodeName)
				}
			}
			if slices.Sort(nodes); !slices.Equal(nodes, want) {
				return fmt.Errorf("runs on %v, want %v", nodes, want)
			}
			return nil
		})
	}
	runsOn(first)
	second := w.addMachine(t)
	runsOn(first, second)

	patch := fmt.Appendf(nil, `{"metadata": {"labels": {%q: null}}}`, ownMark)
	_, err = w.client.CoreV1().Nodes().Patch(t.Context(), first, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	runsOn(second)
}

// createStatefulSet creates a StatefulSet "web" of three.
func (w *world) createStatefulSet(t *testing.T) {
	t.Helper()
	three := int32(3)
	_, err := w.client.AppsV1().StatefulSets(w.namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &three,
			Selector: &metav1.LabelSelector{MatchLabels: webLabels},
			Template: template(podSpec()),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// A StatefulSet makes its Pods one after the other: each is ready before the next one is there.
func TestStatefulSetIsOrdered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	w.createStatefulSet(t)
	var order []string
	ready := map[string]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	pods := cache.NewFilteredListWatchFromClient(w.client.CoreV1().RESTClient(), "pods", w.namespace, func(*metav1.ListOptions) {})
	_, err = watchtools.Until(ctx, list.ResourceVersion, pods, func(event watch.Event) (bool, error) {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return false, fmt.Errorf("watch says %v", event)
		}
		if event.Type == watch.Added {
			if len(order) != len(ready) {
				return false, fmt.Errorf("%s is there, and of %v only %v are ready", pod.Name, order, ready)
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

func TestDeletedPodOfStatefulSetIsRebornWithItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createStatefulSet(t)
	pods := w.client.CoreV1().Pods(w.namespace)
	becomes(t, pods, "web-2", "Ready", podReady)
	first, err := pods.Get(t.Context(), "web-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, pods.Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	becomes(t, pods, "web-1", "reborn", func(pod *corev1.Pod) bool { return pod.UID != first.UID && podReady(pod) })
	becomes(t, w.client.AppsV1().StatefulSets(w.namespace), "web", "complete", func(set *appsv1.StatefulSet) bool {
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
	w := newWorld(t)
	jobs := w.client.BatchV1().Jobs(w.namespace)
	_, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: jobSpec(3)}, metav1.CreateOptions{})
	require.NoError(t, err)
	job := becomes(t, jobs, "work", "complete", func(job *batchv1.Job) bool {
		return slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
			return condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue
		})
	})
	require.EqualValues(t, 3, job.Status.Succeeded)
	require.NotNil(t, job.Status.CompletionTime)
	pods, err := w.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	require.Len(t, pods, 3)
	for _, pod := range pods {
		require.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
	}
}

func TestFinishedJobIsRemovedAfterItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs := w.client.BatchV1().Jobs(w.namespace)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: jobSpec(1)}
	job.Spec.TTLSecondsAfterFinished = new(int32)
	_, err := jobs.Create(t.Context(), job, metav1.CreateOptions{})
	require.NoError(t, err)
	isGone(t, jobs, "work")
}

// So as not to wait for the next full minute, the CronJob is told that it last ran two minutes ago,
// and so has a run to make up for.
func TestCronJobCreatesJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cronJobs := w.client.BatchV1().CronJobs(w.namespace)
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
		jobs, err := w.client.BatchV1().Jobs(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, job := range jobs.Items {
			if metav1.IsControlledBy(&job, cron) && job.Status.Succeeded == 1 {
				return nil
			}
		}
		return fmt.Errorf("none of %d Jobs is the CronJob's and done", len(jobs.Items))
	})
}

func TestServiceGetsItsEndpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deploy(t, 2, podSpec())
	_, err := w.client.CoreV1().Services(w.namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: webLabels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	pods, err := w.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	var want []string
	for _, pod := range pods {
		want = append(want, pod.Status.PodIP)
	}
	slices.Sort(want)
	eventually(t, func(ctx context.Context) error {
		found, err := w.client.DiscoveryV1().EndpointSlices(w.namespace).List(ctx, metav1.ListOptions{
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
		if slices.Sort(ready); !slices.Equal(ready, want) {
			return fmt.Errorf("endpoints are %v, want %v", ready, want)
		}
		return nil
	})
}

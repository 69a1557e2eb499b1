package naiveloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "shop"

// noon is an arbitrary time in whole seconds, like the timestamps that the API server sets.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestLastChange(t *testing.T) {
	managers := func(offsets ...time.Duration) (entries []metav1.ManagedFieldsEntry) {
		for _, offset := range offsets {
			entries = append(entries, metav1.ManagedFieldsEntry{Time: new(metav1.NewTime(noon.Add(offset)))})
		}
		return entries
	}
	tests := map[string]struct {
		managers []metav1.ManagedFieldsEntry
		want     time.Time
	}{
		"no managed fields":                     {nil, noon},
		"a field manager without a time":        {[]metav1.ManagedFieldsEntry{{}}, noon},
		"one field manager":                     {managers(time.Minute), noon.Add(time.Minute)},
		"the latest of several, in any order":   {managers(time.Minute, time.Hour, time.Second), noon.Add(time.Hour)},
		"a time before the creation is ignored": {managers(-time.Hour), noon},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(noon), ManagedFields: test.managers,
			}}
			require.Equal(t, test.want, lastChange(config))
		})
	}
}

func TestIsStale(t *testing.T) {
	const second = time.Second
	tests := map[string]struct {
		created time.Duration // when the Pod was created, relative to the change
		now     time.Duration // relative to the change
		label   string
		deleted bool
		want    bool
	}{
		"created before the change":                                {created: -second, now: second, label: "frontend", want: true},
		"created long before the change":                           {created: -24 * time.Hour, now: time.Hour, label: "frontend", want: true},
		"created after the change":                                 {created: second, now: time.Hour, label: "frontend", want: false},
		"created in the same second as the change":                 {created: 0, now: second, label: "frontend", want: true},
		"the second of the change begins":                          {created: -second, now: 0, label: "frontend", want: false},
		"the second of the change is not over":                     {created: -second, now: second - 1, label: "frontend", want: false},
		"clock behind the API server":                              {created: -second, now: -time.Hour, label: "frontend", want: true},
		"already being deleted":                                    {created: -second, now: second, label: "frontend", deleted: true, want: false},
		"not a Pod of the frontend":                                {created: -second, now: second, label: "backend", want: false},
		"no labels":                                                {created: -second, now: second, want: false},
		"clock ahead of the API server: may be replaced once more": {created: 0, now: time.Hour, label: "frontend", want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(test.created))}}
			if test.label != "" {
				pod.Labels = map[string]string{"app": test.label}
			}
			if test.deleted {
				pod.DeletionTimestamp = new(metav1.NewTime(noon))
			}
			require.Equal(t, test.want, isStale(pod, noon, noon.Add(test.now)))
		})
	}
	t.Run("no config", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "frontend"}}}
		require.False(t, isStale(pod, time.Time{}, noon))
	})
}

// fakeCluster is a cluster in virtual time with one Node. It runs no other controllers, so nothing replaces a
// deleted Pod.
type fakeCluster struct {
	*fake.Clientset
	t   *testing.T
	log ktesting.Buffer
}

func newFakeCluster(t *testing.T) *fakeCluster {
	return &fakeCluster{Clientset: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}), t: t}
}

// createConfig creates the ConfigMap, now.
func (c *fakeCluster) createConfig() {
	c.t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: ConfigName, Namespace: namespace, CreationTimestamp: thisSecond(),
	}}
	require.NoError(c.t, c.Tracker().Add(config))
}

// changeConfig changes the ConfigMap, now. The fake clientset maintains managed fields as the API server does,
// except that it doesn't truncate their times to whole seconds.
func (c *fakeCluster) changeConfig() {
	c.t.Helper()
	configs := c.CoreV1().ConfigMaps(namespace)
	config, err := configs.Get(c.t.Context(), ConfigName, metav1.GetOptions{})
	require.NoError(c.t, err)
	config.Data = map[string]string{"changed": time.Now().String()}
	_, err = configs.Update(c.t.Context(), config, metav1.UpdateOptions{FieldManager: "editor"})
	require.NoError(c.t, err)
}

func thisSecond() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// createPod creates a Pod, now.
func (c *fakeCluster) createPod(name, app string) {
	c.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: namespace, UID: types.UID("uid of " + name),
		Labels:            map[string]string{"app": app},
		CreationTimestamp: thisSecond(),
	}}
	require.NoError(c.t, c.Tracker().Add(pod))
}

// pods returns the names of all Pods that exist.
func (c *fakeCluster) pods() []string {
	c.t.Helper()
	list, err := c.CoreV1().Pods(metav1.NamespaceAll).List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	names := []string{}
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names
}

// loggedErrors returns the errors that the controller logged.
func (c *fakeCluster) loggedErrors() []string {
	var errs []string
	for _, entry := range c.log.Data() {
		if entry.Type == ktesting.LogError {
			errs = append(errs, fmt.Sprint(entry.Err))
		}
	}
	return errs
}

// writes counts the write requests for Pods.
func (c *fakeCluster) writes() int {
	count := 0
	for _, action := range c.Actions() {
		if verb := action.GetVerb(); action.GetResource().Resource == "pods" && verb != "get" && verb != "list" {
			count++
		}
	}
	return count
}

// start starts the controller on the Node, and returns a function that stops it.
func (c *fakeCluster) start() (stop func()) { return c.startOn("node-0") }

func (c *fakeCluster) startOn(node string) (stop func()) {
	logger := ktesting.NewLogger(c.t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	c.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	done := make(chan struct{})
	controller := &Controller{Client: c.Clientset, Namespace: namespace, NodeName: node, Interval: time.Second}
	go func() {
		defer close(done)
		controller.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// advance moves virtual time forward by d, and waits until the controller has caught up.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestReplacesPodsWhenTheConfigChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.createConfig()
		advance(time.Minute)
		cluster.createPod("frontend-1", "frontend")
		cluster.createPod("frontend-2", "frontend")
		cluster.createPod("backend-1", "backend")
		elsewhere := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Namespace: "mall", Labels: map[string]string{"app": "frontend"}}}
		require.NoError(t, cluster.Tracker().Add(elsewhere))
		stop := cluster.start()
		defer stop()

		advance(time.Hour)
		require.Equal(t, []string{"elsewhere", "backend-1", "frontend-1", "frontend-2"}, cluster.pods(), "before the change")
		require.Zero(t, cluster.writes(), "writes at rest")

		cluster.changeConfig()
		advance(5 * time.Second)
		require.Equal(t, []string{"elsewhere", "backend-1"}, cluster.pods(), "after the change")
		require.Equal(t, 2, cluster.writes(), "one write for each stale Pod")

		cluster.createPod("frontend-3", "frontend")
		advance(time.Hour)
		require.Equal(t, []string{"elsewhere", "backend-1", "frontend-3"}, cluster.pods(), "a Pod created after the change stays")
		require.Equal(t, 2, cluster.writes(), "writes at rest")
		require.Empty(t, cluster.loggedErrors())
	})
}

func TestActsOnAChangeMadeWhileItWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.createConfig()
		advance(time.Minute)
		cluster.createPod("frontend-1", "frontend")
		stop := cluster.start()
		advance(time.Minute)
		stop()

		cluster.changeConfig()
		advance(time.Hour)
		require.Equal(t, []string{"frontend-1"}, cluster.pods(), "while the controller is down")

		stop = cluster.start()
		defer stop()
		advance(5 * time.Second)
		require.Empty(t, cluster.pods(), "after the restart")
	})
}

func TestRetriesFailedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.createPod("frontend-1", "frontend")
		cluster.createPod("frontend-2", "frontend")
		advance(time.Minute)
		cluster.createConfig()

		failures := map[string]int{"get configmaps": 2, "get nodes": 1, "list nodes": 1, "list pods": 1, "delete pods": 3}
		cluster.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			request := action.GetVerb() + " " + action.GetResource().Resource
			if failures[request] == 0 {
				return false, nil, nil
			}
			failures[request]--
			return true, nil, apierrors.NewInternalError(errors.New("injected failure"))
		})
		stop := cluster.start()
		defer stop()
		advance(time.Minute)
		require.Empty(t, cluster.pods())
		for request, left := range failures {
			require.Zero(t, left, "injected failures left: %s was not retried", request)
		}
	})
}

func TestFailedDeletionDoesNotBlockOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		for _, name := range []string{"frontend-1", "frontend-2", "frontend-3"} {
			cluster.createPod(name, "frontend")
		}
		advance(time.Minute)
		cluster.createConfig()
		cluster.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.DeleteAction).GetName() != "frontend-1" {
				return false, nil, nil
			}
			return true, nil, apierrors.NewTooManyRequests("injected failure", 1)
		})
		stop := cluster.start()
		defer stop()
		advance(2 * time.Second)
		require.Equal(t, []string{"frontend-1"}, cluster.pods())
		require.Equal(t, []string{"delete Pod shop/frontend-1: injected failure"}, cluster.loggedErrors()[:1], "the error names the Pod")
	})
}

// The controller reads the Node that it runs on only if it knows its name.
func TestOwnNode(t *testing.T) {
	for _, name := range []string{"", "node-0"} {
		synctest.Test(t, func(t *testing.T) {
			cluster := newFakeCluster(t)
			stop := cluster.startOn(name)
			advance(time.Minute)
			stop()
			require.Empty(t, cluster.loggedErrors())
			logged := strings.Contains(cluster.log.String(), `Own Node node="node-0"`)
			require.Equal(t, name != "", logged, "%s", cluster.log.String())
		})
	}
}

func TestMissingObjectsAreNotErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.createPod("frontend-1", "frontend")
		// The Pod is deleted by someone else between the controller's list and its delete.
		cluster.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), "frontend-1")
		})
		stop := cluster.start()
		defer stop()
		advance(time.Minute)
		require.Empty(t, cluster.loggedErrors(), "errors without a config")
		require.Equal(t, []string{"frontend-1"}, cluster.pods())

		cluster.createConfig()
		advance(time.Minute)
		require.NotZero(t, cluster.writes())
		require.Empty(t, cluster.loggedErrors(), "errors for a Pod that no longer exists")
	})
}

func TestDeletesOnlyTheObservedUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.createPod("frontend-0", "frontend")
		advance(time.Minute)
		cluster.createConfig()
		var preconditions []string
		cluster.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			options := action.(clienttesting.DeleteAction).GetDeleteOptions()
			preconditions = append(preconditions, fmt.Sprint(*options.Preconditions.UID))
			return false, nil, nil
		})
		stop := cluster.start()
		defer stop()
		advance(5 * time.Second)
		require.Equal(t, []string{"uid of frontend-0"}, preconditions)
	})
}

func TestStopsWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := newFakeCluster(t).start()
		advance(time.Minute + time.Second/2)
		cancelled := time.Now()
		stop()
		require.Zero(t, time.Since(cancelled), "virtual time that Run took to return after ctx was cancelled")
	})
}

package naiveloop

import (
	"context"
	"errors"
	"fmt"
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

// noon is an arbitrary time in whole seconds, as the API server writes them.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestLastChange(t *testing.T) {
	written := func(offsets ...time.Duration) (writers []metav1.ManagedFieldsEntry) {
		for _, offset := range offsets {
			writers = append(writers, metav1.ManagedFieldsEntry{Time: new(metav1.NewTime(noon.Add(offset)))})
		}
		return writers
	}
	tests := map[string]struct {
		writers []metav1.ManagedFieldsEntry
		want    time.Time
	}{
		"nobody is known to have written it":    {nil, noon},
		"a writer without a time":               {[]metav1.ManagedFieldsEntry{{}}, noon},
		"one writer":                            {written(time.Minute), noon.Add(time.Minute)},
		"the last of several, whatever order":   {written(time.Minute, time.Hour, time.Second), noon.Add(time.Hour)},
		"a time before the creation is no news": {written(-time.Hour), noon},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(noon), ManagedFields: test.writers,
			}}
			require.Equal(t, test.want, lastChange(config))
		})
	}
}

func TestIsStale(t *testing.T) {
	const second = time.Second
	tests := map[string]struct {
		created time.Duration // of the Pod, after the change
		now     time.Duration // after the change
		label   string
		deleted bool
		want    bool
	}{
		"created before the change":                     {created: -second, now: second, label: "frontend", want: true},
		"created long before the change":                {created: -24 * time.Hour, now: time.Hour, label: "frontend", want: true},
		"created after the change":                      {created: second, now: time.Hour, label: "frontend", want: false},
		"created in the second of the change":           {created: 0, now: second, label: "frontend", want: true},
		"the second of the change is not over":          {created: -second, now: second - 1, label: "frontend", want: false},
		"our clock is behind the API server's":          {created: -second, now: -time.Hour, label: "frontend", want: true},
		"it is being deleted already":                   {created: -second, now: second, label: "frontend", deleted: true, want: false},
		"it is not of the frontend":                     {created: -second, now: second, label: "backend", want: false},
		"it has no labels":                              {created: -second, now: second, want: false},
		"our clock is ahead: replaced, maybe once more": {created: 0, now: time.Hour, label: "frontend", want: true},
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
	t.Run("there is no config", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "frontend"}}}
		require.False(t, isStale(pod, time.Time{}, noon))
	})
}

// world is a fake cluster in virtual time: a Node, a ConfigMap, and Pods that nobody brings back.
type world struct {
	*fake.Clientset
	t   *testing.T
	log ktesting.Buffer
}

func newWorld(t *testing.T) *world {
	return &world{Clientset: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}), t: t}
}

// createConfig makes the ConfigMap now.
func (w *world) createConfig() {
	w.t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: ConfigName, Namespace: namespace, CreationTimestamp: thisSecond(),
	}}
	require.NoError(w.t, w.Tracker().Add(config))
}

// changeConfig changes the ConfigMap now. The fake clientset keeps managed fields as the API server
// does, but for whole seconds.
func (w *world) changeConfig() {
	w.t.Helper()
	configs := w.CoreV1().ConfigMaps(namespace)
	config, err := configs.Get(w.t.Context(), ConfigName, metav1.GetOptions{})
	require.NoError(w.t, err)
	config.Data = map[string]string{"changed": time.Now().String()}
	_, err = configs.Update(w.t.Context(), config, metav1.UpdateOptions{FieldManager: "editor"})
	require.NoError(w.t, err)
}

func thisSecond() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// startPod starts a Pod now.
func (w *world) startPod(name, app string) {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: namespace, UID: types.UID("uid of " + name),
		Labels:            map[string]string{"app": app},
		CreationTimestamp: thisSecond(),
	}}
	err := w.Tracker().Add(pod)
	require.NoError(w.t, err)
}

// pods returns the names of the Pods that are left.
func (w *world) pods() []string {
	w.t.Helper()
	list, err := w.CoreV1().Pods(metav1.NamespaceAll).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	names := []string{}
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names
}

// complaints returns the errors that the controller logged.
func (w *world) complaints() []string {
	var errs []string
	for _, entry := range w.log.Data() {
		if entry.Type == ktesting.LogError {
			errs = append(errs, fmt.Sprint(entry.Err))
		}
	}
	return errs
}

// writes counts the requests that could have changed a Pod.
func (w *world) writes() int {
	count := 0
	for _, action := range w.Actions() {
		if verb := action.GetVerb(); action.GetResource().Resource == "pods" && verb != "get" && verb != "list" {
			count++
		}
	}
	return count
}

// run runs the controller, and returns what stops it.
func (w *world) run() (stop func()) {
	logger := ktesting.NewLogger(w.t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	w.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	done := make(chan struct{})
	controller := &Controller{Client: w.Clientset, Namespace: namespace, NodeName: "node-0", Interval: time.Second}
	go func() {
		defer close(done)
		controller.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// later lets virtual time pass.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestReplacesPodsWhenTheConfigChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.createConfig()
		later(time.Minute)
		w.startPod("frontend-1", "frontend")
		w.startPod("frontend-2", "frontend")
		w.startPod("backend-1", "backend")
		elsewhere := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Namespace: "mall", Labels: map[string]string{"app": "frontend"}}}
		require.NoError(t, w.Tracker().Add(elsewhere))
		stop := w.run()
		defer stop()

		later(time.Hour)
		require.Equal(t, []string{"elsewhere", "backend-1", "frontend-1", "frontend-2"}, w.pods(), "before any change")
		require.Zero(t, w.writes(), "writes at rest")

		w.changeConfig()
		later(5 * time.Second)
		require.Equal(t, []string{"elsewhere", "backend-1"}, w.pods(), "after the change")
		require.Equal(t, 2, w.writes(), "one write for each Pod that had to be replaced")

		w.startPod("frontend-3", "frontend")
		later(time.Hour)
		require.Equal(t, []string{"elsewhere", "backend-1", "frontend-3"}, w.pods(), "a Pod that started after the change")
		require.Equal(t, 2, w.writes(), "writes at rest")
		require.Empty(t, w.complaints())
	})
}

func TestActsOnAChangeMadeWhileItWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.createConfig()
		later(time.Minute)
		w.startPod("frontend-1", "frontend")
		stop := w.run()
		later(time.Minute)
		stop()

		w.changeConfig()
		later(time.Hour)
		require.Equal(t, []string{"frontend-1"}, w.pods(), "while it is down")

		stop = w.run()
		defer stop()
		later(5 * time.Second)
		require.Empty(t, w.pods(), "after it has come back")
	})
}

func TestTriesAgainWhenTheAPIServerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPod("frontend-1", "frontend")
		w.startPod("frontend-2", "frontend")
		later(time.Minute)
		w.createConfig()

		failures := map[string]int{"get configmaps": 2, "get nodes": 1, "list nodes": 1, "list pods": 1, "delete pods": 3}
		w.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			what := action.GetVerb() + " " + action.GetResource().Resource
			if failures[what] == 0 {
				return false, nil, nil
			}
			failures[what]--
			return true, nil, apierrors.NewInternalError(errors.New("the API server has a bad day"))
		})
		stop := w.run()
		defer stop()
		later(time.Minute)
		require.Empty(t, w.pods())
		for what, left := range failures {
			require.Zero(t, left, "%s was not tried again", what)
		}
	})
}

func TestOnePodThatCannotBeDeletedDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, name := range []string{"frontend-1", "frontend-2", "frontend-3"} {
			w.startPod(name, "frontend")
		}
		later(time.Minute)
		w.createConfig()
		w.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.DeleteAction).GetName() != "frontend-1" {
				return false, nil, nil
			}
			return true, nil, apierrors.NewTooManyRequests("not now", 1)
		})
		stop := w.run()
		defer stop()
		later(2 * time.Second)
		require.Equal(t, []string{"frontend-1"}, w.pods())
		require.Equal(t, []string{"delete Pod shop/frontend-1: not now"}, w.complaints()[:1], "the error names the Pod")
	})
}

func TestTakesForGrantedWhatMayBeMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPod("frontend-1", "frontend")
		// Somebody else deletes the Pod between our list and our delete.
		w.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), "frontend-1")
		})
		stop := w.run()
		defer stop()
		later(time.Minute)
		require.Empty(t, w.complaints(), "there is no config")
		require.Equal(t, []string{"frontend-1"}, w.pods())

		w.createConfig()
		later(time.Minute)
		require.NotZero(t, w.writes())
		require.Empty(t, w.complaints(), "the Pod is gone")
	})
}

func TestDeletesThePodItSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPod("frontend-0", "frontend")
		later(time.Minute)
		w.createConfig()
		var preconditions []string
		w.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			options := action.(clienttesting.DeleteAction).GetDeleteOptions()
			preconditions = append(preconditions, fmt.Sprint(*options.Preconditions.UID))
			return false, nil, nil
		})
		stop := w.run()
		defer stop()
		later(5 * time.Second)
		require.Equal(t, []string{"uid of frontend-0"}, preconditions)
	})
}

func TestStopsWithinAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := newWorld(t).run()
		later(time.Minute + time.Second/2)
		begin := time.Now()
		stop()
		require.Zero(t, time.Since(begin), "it waits for nothing when it is asked to stop")
	})
}

package workqueue

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "shop"

// world is an API server in memory, in virtual time: an hour takes no longer than what happens in it. It has neither
// a Deployment that would create new Pods nor kubelets that would end the old ones.
type world struct {
	*fake.Clientset
	t        *testing.T
	failures int             // how many of the next requests to delete a Pod fail
	changed  time.Time       // when the config was
	requests []time.Duration // when each was made, since changed
	deleted  []string        // names of the Pods that were
}

// newWorld returns a world with a config, and with these Pods, by name and label "app". They were created after the config.
func newWorld(t *testing.T, pods map[string]string) *world {
	w := &world{t: t, Clientset: fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ConfigName, CreationTimestamp: metav1.Now()},
	})}
	advance(time.Minute)
	for name, app := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{"app": app}, CreationTimestamp: metav1.Now(),
		}}
		_, err := w.CoreV1().Pods(namespace).Create(context.Background(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return w
}

// delete stands in for podDeleter, since the fake clientset has no REST client. As on a real API server, the Pod is
// terminating then, and has a new resourceVersion.
func (w *world) delete(ctx context.Context, pod *corev1.Pod) (resourceVersion string, err error) {
	w.requests = append(w.requests, time.Since(w.changed))
	if w.failures > 0 {
		w.failures--
		return "", apierrors.NewInternalError(errors.New("etcd is unavailable"))
	}
	w.deleted = append(w.deleted, pod.Name)
	pod = pod.DeepCopy() // the one in the cache must not be modified
	pod.DeletionTimestamp = new(metav1.Now())
	pod.ResourceVersion = strconv.Itoa(100 + len(w.requests)) // those of the fake clientset's lists count from 1
	_, err = w.CoreV1().Pods(namespace).Update(ctx, pod, metav1.UpdateOptions{})
	return pod.ResourceVersion, err
}

// run starts the controller, waits until it is idle, and returns a function that stops it.
func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c, err := New(ctx, w, Options{Namespace: namespace, Workers: 1, Backoff: time.Second, MaxBackoff: time.Minute, Grace: time.Second})
	require.NoError(w.t, err)
	c.deletePod = w.delete
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		require.NoError(w.t, <-ended)
	}
}

// changeConfig changes the config. The fake clientset records when, in managedFields, as the API server does.
func (w *world) changeConfig() {
	configs := w.CoreV1().ConfigMaps(namespace)
	config, err := configs.Get(context.Background(), ConfigName, metav1.GetOptions{})
	require.NoError(w.t, err)
	w.changed = time.Now()
	config.Data = map[string]string{"greeting": time.Now().String()}
	_, err = configs.Update(context.Background(), config, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// advance lets time pass, and waits until all goroutines are idle.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestReplacesPodsWhenTheConfigChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[string]string{"frontend-1": "frontend", "frontend-2": "frontend", "backend-1": "backend"})
		defer w.run()()
		advance(time.Hour)
		require.Empty(t, w.requests, "before the change")
		w.changeConfig()
		advance(time.Hour)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2"}, w.deleted)
		require.Len(t, w.requests, 2, "one for each of them, and no more")
	})
}

func TestActsOnAChangeMadeWhileItWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[string]string{"frontend-1": "frontend"})
		w.run()() // stops it
		advance(time.Hour)
		w.changeConfig()
		advance(time.Hour)
		require.Empty(t, w.requests, "while it is down")
		defer w.run()()
		require.Equal(t, []string{"frontend-1"}, w.deleted)
	})
}

func TestRetriesWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[string]string{"frontend-1": "frontend"})
		defer w.run()()
		w.failures = 3
		advance(time.Hour)
		w.changeConfig()
		advance(time.Hour)
		// The controller waits until the second of the change is over, and then 1, 2 and 4 seconds more.
		require.Equal(t, []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, w.requests)
		require.Equal(t, []string{"frontend-1"}, w.deleted)
	})
}

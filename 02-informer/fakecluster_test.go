package informer

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // hides the warning that the mutation detector uses memory
	// The other handler limits the rate of errors by their times, which are from the virtual clocks of different tests.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

// The mutation detector makes every other test fail that modifies an object in an informer's cache. client-go reads
// the variable when the program starts, so a test can't set it.
func TestMutationDetectorIsOn(t *testing.T) {
	if os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") == "" {
		t.Skip("to find out whether the controller modifies cached objects, run KUBE_CACHE_MUTATION_DETECTOR=true go test ./...")
	}
	defer func(stdout *os.File) { os.Stdout = stdout }(os.Stdout)
	os.Stdout = nil // The detector prints a long diff.

	detector := cache.NewCacheMutationDetector("Pods") // Each shared informer creates one like this.
	pod := &corev1.Pod{}
	detector.AddObject(pod)
	pod.Labels = map[string]string{"seen": "yes"}
	stopped := make(chan struct{})
	close(stopped)
	require.PanicsWithValue(t, "cache Pods modified", func() { detector.Run(stopped) }, "KUBE_CACHE_MUTATION_DETECTOR must be true")
}

const namespace = "shop"

// gracePeriod is how long a Pod keeps running after it is marked for deletion.
const gracePeriod = 30 * time.Second

// fakeCluster is a cluster in virtual time. It runs no other controllers, so nothing replaces a deleted Pod.
//
// The fake clientset has no resourceVersions, no field selectors and no preconditions; it deletes Pods without a
// grace period, and its watches never break. fakeCluster adds what informers and the controller rely on. It doesn't
// add conflicts between writers.
type fakeCluster struct {
	*fake.Clientset
	t             *testing.T
	log           ktesting.Buffer
	configChanges int // number of calls of changeConfig

	objects clienttesting.ObjectTracker
	watches map[string]*watch.RaceFreeFakeWatcher // by resource: the watch that was opened last
	lag     map[string]time.Duration              // by resource: the delay of each watch event; set before start

	mu               sync.Mutex
	resourceVersions map[string]int // by resource: the resourceVersion of the last write
	deleteRequests   []string       // see deleted
}

func newFakeCluster(t *testing.T) *fakeCluster {
	c := &fakeCluster{
		Clientset: &fake.Clientset{},
		t:         t,
		objects:   clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		watches:   map[string]*watch.RaceFreeFakeWatcher{},
		lag:       map[string]time.Duration{},

		resourceVersions: map[string]int{},
	}
	c.AddReactor("delete", "pods", c.reactToDelete)
	c.AddReactor("list", "*", c.reactToList)
	c.AddReactor("*", "*", clienttesting.ObjectReaction(c.objects))
	c.AddWatchReactor("*", c.reactToWatch)
	return c
}

// write creates or updates an object. It sets the object's resourceVersion to the one that the tracker returns for
// a list after the write.
func (c *fakeCluster) write(object interface {
	runtime.Object
	metav1.Object
}) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	resource := "configmaps"
	if _, ok := object.(*corev1.Pod); ok {
		resource = "pods"
	}
	c.resourceVersions[resource]++
	object.SetResourceVersion(strconv.Itoa(c.resourceVersions[resource] + 1))
	kind := corev1.SchemeGroupVersion.WithResource(resource)
	err := c.objects.Update(kind, object, object.GetNamespace())
	if apierrors.IsNotFound(err) {
		err = c.objects.Create(kind, object, object.GetNamespace())
	}
	assert.NoError(c.t, err)
}

// reactToDelete marks a Pod for deletion, and removes it at the end of its grace period.
func (c *fakeCluster) reactToDelete(action clienttesting.Action) (bool, runtime.Object, error) {
	request := action.(clienttesting.DeleteAction)
	c.mu.Lock()
	c.deleteRequests = append(c.deleteRequests, request.GetName())
	c.mu.Unlock()
	pod, err := c.pod(request.GetNamespace(), request.GetName())
	if err != nil {
		return true, nil, err
	}
	if required := request.GetDeleteOptions().Preconditions; required != nil && required.UID != nil && *required.UID != pod.UID {
		return true, nil, apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("the UID is %s", pod.UID))
	}
	pod.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(gracePeriod)))
	c.write(pod)
	time.AfterFunc(gracePeriod, func() { c.remove(pod) })
	return true, nil, nil
}

// deleted returns the names of the Pods in all delete requests so far, in order.
func (c *fakeCluster) deleted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.deleteRequests)
}

func (c *fakeCluster) reactToList(action clienttesting.Action) (bool, runtime.Object, error) {
	_, list, err := clienttesting.ObjectReaction(c.objects)(action)
	if err != nil {
		return true, nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return true, nil, err
	}
	selector := action.(clienttesting.ListAction).GetListRestrictions().Fields
	items = slices.DeleteFunc(items, func(object runtime.Object) bool { return !matches(selector, object) })
	return true, list, meta.SetList(list, items)
}

func (c *fakeCluster) reactToWatch(action clienttesting.Action) (bool, watch.Interface, error) {
	request := action.(clienttesting.WatchActionImpl)
	source, err := c.objects.Watch(request.GetResource(), request.GetNamespace(), request.ListOptions)
	if err != nil {
		return true, nil, err
	}
	resource := request.GetResource().Resource
	c.watches[resource] = source.(*watch.RaceFreeFakeWatcher)
	lag := c.lag[resource]
	events := make(chan watch.Event)
	delayed := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer source.Stop()
		for {
			select {
			case event := <-source.ResultChan():
				if !matches(request.WatchRestrictions.Fields, event.Object) {
					continue
				}
				if lag > 0 { // a timer that is due crashes the race detector now and then: https://go.dev/issue/78156
					select {
					case <-time.After(lag):
					case <-delayed.StopChan():
						return
					}
				}
				select {
				case events <- event:
				case <-delayed.StopChan():
					return
				}
			case <-delayed.StopChan():
				return
			}
		}
	}()
	return true, delayed, nil
}

// matches reports whether a request with the field selector gets the object. It always gets errors.
func matches(selector fields.Selector, object runtime.Object) bool {
	metadata, err := meta.Accessor(object)
	return err != nil || selector.Matches(fields.Set{metav1.ObjectNameField: metadata.GetName()})
}

// breakWatch ends a watch with 410 Gone: the API server no longer has the changes since the last event. The informer
// backs off for up to a few seconds, and relists.
func (c *fakeCluster) breakWatch(resource string) {
	c.watches[resource].Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
	synctest.Wait()
}

// delay makes requests take the time d.
func (c *fakeCluster) delay(verb, resource string, d time.Duration) {
	c.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		// The fake clientset holds its lock during a request. Virtual time doesn't advance while a goroutine is
		// blocked on a lock.
		c.Unlock()
		time.Sleep(d)
		c.Lock()
		return false, nil, nil
	})
}

// delayWatchStop makes watches take the time d to stop.
func (c *fakeCluster) delayWatchStop(resource string, d time.Duration) {
	c.PrependWatchReactor(resource, func(action clienttesting.Action) (bool, watch.Interface, error) {
		handled, watcher, err := c.reactToWatch(action)
		return handled, slowWatch{watcher, d}, err
	})
}

type slowWatch struct {
	watch.Interface
	stopDelay time.Duration
}

func (s slowWatch) Stop() {
	time.Sleep(s.stopDelay)
	s.Interface.Stop()
}

// fail makes requests fail with err.
func (c *fakeCluster) fail(verb, resource string, err error) {
	c.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, err
	})
}

// newPod returns a Pod that runs on node-0.
func newPod(namespace, name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid of " + name),
			Labels: map[string]string{"app": app},
		},
		Spec: corev1.PodSpec{NodeName: "node-0"},
	}
}

// createPods creates Pods of the frontend.
func (c *fakeCluster) createPods(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.write(newPod(namespace, name, "frontend"))
	}
}

func (c *fakeCluster) pod(namespace, name string) (*corev1.Pod, error) {
	pod, err := c.objects.Get(corev1.SchemeGroupVersion.WithResource("pods"), namespace, name)
	if err != nil {
		return nil, err
	}
	return pod.(*corev1.Pod), nil
}

// remove deletes the object of a Pod whose containers have stopped, as the kubelet does.
func (c *fakeCluster) remove(pod *corev1.Pod) {
	if current, err := c.pod(pod.Namespace, pod.Name); err != nil || current.UID != pod.UID {
		return // It has been removed already.
	}
	pod.Status.Phase = corev1.PodSucceeded
	c.write(pod)
	assert.NoError(c.t, c.objects.Delete(corev1.SchemeGroupVersion.WithResource("pods"), pod.Namespace, pod.Name))
}

// changeConfig creates a ConfigMap or changes its data.
func (c *fakeCluster) changeConfig(namespace, name string) {
	c.t.Helper()
	c.configChanges++
	c.write(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"changes": strconv.Itoa(c.configChanges)},
	})
}

// context returns a context whose logger writes to c.log.
func (c *fakeCluster) context() context.Context {
	logger := ktesting.NewLogger(c.t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	c.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	return klog.NewContext(context.Background(), logger)
}

// start starts the controller, and returns a function that stops it.
func (c *fakeCluster) start(resync time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(c.context())
	done := make(chan struct{})
	controller := &Controller{Client: c.Clientset, Namespace: namespace, Resync: resync}
	go func() {
		defer close(done)
		if err := controller.Run(ctx); err != nil {
			c.t.Error("Run:", err)
		}
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}

// logged returns the lines of the log that start with one of the prefixes.
func (c *fakeCluster) logged(prefixes ...string) []string {
	lines := []string{}
	for _, entry := range c.log.Data() {
		line := format(entry)
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// loggedErrors returns the error lines of the log.
func (c *fakeCluster) loggedErrors() []string {
	lines := []string{}
	for _, entry := range c.log.Data() {
		if entry.Type == ktesting.LogError {
			lines = append(lines, format(entry))
		}
	}
	return lines
}

// format formats a log entry as "message key=value…: error".
func format(entry ktesting.LogEntry) string {
	line := entry.Message
	for i := 0; i+1 < len(entry.ParameterKVList); i += 2 {
		line += fmt.Sprintf(" %v=%v", entry.ParameterKVList[i], entry.ParameterKVList[i+1])
	}
	if entry.Err != nil {
		line += ": " + entry.Err.Error()
	}
	return line
}

// advance moves virtual time forward by d, and waits until the controller has caught up.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

package workqueue

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
	klog.SetLogger(klog.Logger{}) // drops what is not written to a test's own log
	// The second handler limits the rate of errors by the clock, and each test has a virtual clock of its own.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

// With the detector on, client-go compares each cache with a copy of it once a second, and panics if somebody has
// modified a cached object. So it is a part of every test that runs a controller.
func TestTheMutationDetectorIsOn(t *testing.T) {
	const variable = "KUBE_CACHE_MUTATION_DETECTOR" // client-go reads it before any test can set it
	on, _ := strconv.ParseBool(os.Getenv(variable))
	require.True(t, on, "run the tests with %s=true, or they do not notice that a cached object is modified", variable)

	defer func(stdout *os.File) { os.Stdout = stdout }(os.Stdout)
	os.Stdout = nil // the detector prints a long diff

	detector := cache.NewCacheMutationDetector("Pods") // as each informer creates one
	pod := &corev1.Pod{}
	detector.AddObject(pod)
	pod.Labels = map[string]string{"seen": "yes"}
	ended := make(chan struct{})
	close(ended)
	require.PanicsWithValue(t, "cache Pods modified", func() { detector.Run(ended) })
}

const namespace = "shop"

// grace is how long a Pod takes to terminate.
const grace = 30 * time.Second

// world is a cluster in virtual time, without a Deployment that would recreate Pods. The fake clientset alone knows
// no resourceVersions, field selectors or preconditions; it deletes Pods at once, and its watches never break and are
// never late. The world adds what informers and the controller rely on, but no conflicts between two writers. The
// fake clientset has no REST client either, so deletePod stands in for podDeleter, which has its own tests.
type world struct {
	*fake.Clientset
	t          *testing.T
	log        ktesting.Buffer
	options    Options
	prepare    func(*Controller) // called before the controller runs; may be nil
	controller *Controller       // the last one that was run

	mu       sync.Mutex
	objects  clienttesting.ObjectTracker
	written  map[string]int                        // resource → number of its writes, from which resourceVersions follow
	watches  map[string]*watch.RaceFreeFakeWatcher // resource → its last watch
	watchLag map[string]time.Duration              // resource → how late a watch delivers each event

	onDelete func(context.Context, *corev1.Pod) error // called before a Pod is deleted; an error fails the request; may be nil
	requests []request                                // to delete Pods, in order
}

type request struct {
	pod string // its UID
	at  time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{
		Clientset: &fake.Clientset{},
		t:         t,
		options: Options{
			Namespace: namespace, Workers: 2, Grace: 10 * time.Second,
			Backoff: time.Second, MaxBackoff: 10 * time.Second, WarnAfter: 3,
		},
		objects:  clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		written:  map[string]int{},
		watches:  map[string]*watch.RaceFreeFakeWatcher{},
		watchLag: map[string]time.Duration{},
	}
	w.AddReactor("list", "*", w.answerList)
	w.AddReactor("*", "*", clienttesting.ObjectReaction(w.objects))
	w.AddWatchReactor("*", w.answerWatch)
	return w
}

// write creates or updates an object. It sets the resourceVersion that the tracker counts for the resource, which is
// also the one that a list at that time has.
func (w *world) write(object interface {
	runtime.Object
	metav1.Object
}) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	resource := "configmaps"
	if _, ok := object.(*corev1.Pod); ok {
		resource = "pods"
	}
	w.written[resource]++
	object.SetResourceVersion(strconv.Itoa(w.written[resource] + 1))
	kind := corev1.SchemeGroupVersion.WithResource(resource)
	err := w.objects.Update(kind, object, object.GetNamespace())
	if apierrors.IsNotFound(err) {
		err = w.objects.Create(kind, object, object.GetNamespace())
	}
	assert.NoError(w.t, err)
}

// deletePod sets the Pod's deletionTimestamp and returns its resourceVersion. It removes the Pod when its grace period
// is over, unless the Pod has finalizers.
func (w *world) deletePod(ctx context.Context, pod *corev1.Pod) (string, error) {
	w.mu.Lock()
	w.requests = append(w.requests, request{string(pod.UID), time.Now()})
	onDelete := w.onDelete
	w.mu.Unlock()
	if onDelete != nil {
		if err := onDelete(ctx, pod); err != nil {
			return "", err
		}
	}
	current, err := w.pod(pod.Name)
	if err != nil {
		return "", err
	}
	if current.UID != pod.UID {
		return "", apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("the UID is %s", current.UID))
	}
	if current.DeletionTimestamp == nil {
		current.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(grace)))
		w.write(current)
		if len(current.Finalizers) == 0 {
			time.AfterFunc(grace, func() { w.remove(current) })
		}
	}
	return current.ResourceVersion, nil
}

// deleted returns the UIDs of the Pods in the requests to delete, in order.
func (w *world) deleted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	uids := []string{}
	for _, request := range w.requests {
		uids = append(uids, request.pod)
	}
	return uids
}

// requestsSince returns when Pods were requested to be deleted, counted from begin.
func (w *world) requestsSince(begin time.Time) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var times []time.Duration
	for _, request := range w.requests {
		if !request.at.Before(begin) {
			times = append(times, request.at.Sub(begin))
		}
	}
	return times
}

func (w *world) answerList(action clienttesting.Action) (bool, runtime.Object, error) {
	_, list, err := clienttesting.ObjectReaction(w.objects)(action)
	if err != nil {
		return true, nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return true, nil, err
	}
	selector := action.(clienttesting.ListAction).GetListRestrictions().Fields
	items = slices.DeleteFunc(items, func(object runtime.Object) bool { return !selected(selector, object) })
	return true, list, meta.SetList(list, items)
}

func (w *world) answerWatch(action clienttesting.Action) (bool, watch.Interface, error) {
	request := action.(clienttesting.WatchActionImpl)
	from, err := w.objects.Watch(request.GetResource(), request.GetNamespace(), request.ListOptions)
	if err != nil {
		return true, nil, err
	}
	resource := request.GetResource().Resource
	w.watches[resource] = from.(*watch.RaceFreeFakeWatcher)
	lag := w.watchLag[resource]
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer from.Stop()
		for {
			select {
			case event := <-from.ResultChan():
				if !selected(request.WatchRestrictions.Fields, event.Object) {
					continue
				}
				if lag > 0 { // a timer that is due crashes the race detector now and then: https://go.dev/issue/78156
					select {
					case <-time.After(lag):
					case <-to.StopChan():
						return
					}
				}
				select {
				case events <- event:
				case <-to.StopChan():
					return
				}
			case <-to.StopChan():
				return
			}
		}
	}()
	return true, to, nil
}

// selected reports whether a request with that field selector returns the object. Errors of a watch always are.
func selected(selector fields.Selector, object runtime.Object) bool {
	named, err := meta.Accessor(object)
	return err != nil || selector.Matches(fields.Set{metav1.ObjectNameField: named.GetName()})
}

// breakWatch ends a watch with 410 Gone, as a server does that has compacted the resourceVersion. The client lists
// again within a few seconds.
func (w *world) breakWatch(resource string) {
	w.watches[resource].Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
	synctest.Wait()
}

// delayRequests delays the responses to matching requests.
func (w *world) delayRequests(verb, resource string, d time.Duration) {
	w.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		// The fake clientset holds its lock while it answers, and virtual time does not advance while a goroutine
		// waits for a lock.
		w.Unlock()
		time.Sleep(d)
		w.Lock()
		return false, nil, nil
	})
}

// delayWatchStop delays the end of watches.
func (w *world) delayWatchStop(resource string, d time.Duration) {
	w.PrependWatchReactor(resource, func(action clienttesting.Action) (bool, watch.Interface, error) {
		handled, quick, err := w.answerWatch(action)
		return handled, slowWatch{quick, d}, err
	})
}

type slowWatch struct {
	watch.Interface
	stopping time.Duration
}

func (s slowWatch) Stop() {
	time.Sleep(s.stopping)
	s.Interface.Stop()
}

// failRequests fails matching requests.
func (w *world) failRequests(verb, resource string, err error) {
	w.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, err
	})
}

func thisSecond() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// newPod returns a Pod created in this second, on node-0. Its UID is its name.
func newPod(namespace, name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name),
			Labels: map[string]string{"app": app}, CreationTimestamp: thisSecond(),
		},
		Spec: corev1.PodSpec{NodeName: "node-0"},
	}
}

// startPods creates Pods of the frontend.
func (w *world) startPods(names ...string) {
	for _, name := range names {
		w.write(newPod(namespace, name, "frontend"))
	}
}

// pod returns the current Pod, which may be newer than the one in the cache.
func (w *world) pod(name string) (*corev1.Pod, error) {
	pod, err := w.objects.Get(corev1.SchemeGroupVersion.WithResource("pods"), namespace, name)
	if err != nil {
		return nil, err
	}
	return pod.(*corev1.Pod), nil
}

// touch updates a field of a Pod that the controller does not use.
func (w *world) touch(name string) {
	pod, err := w.pod(name)
	if assert.NoError(w.t, err) {
		pod.Status.Message = time.Now().String()
		w.write(pod)
	}
}

// remove deletes a terminated Pod, as the kubelet does.
func (w *world) remove(pod *corev1.Pod) {
	if current, err := w.pod(pod.Name); err != nil || current.UID != pod.UID {
		return // it is gone already
	}
	pod.Status.Phase = corev1.PodSucceeded
	w.write(pod)
	assert.NoError(w.t, w.objects.Delete(corev1.SchemeGroupVersion.WithResource("pods"), pod.Namespace, pod.Name))
}

// changeConfig updates or creates the ConfigMap.
func (w *world) changeConfig() { w.changeOtherConfig(namespace, ConfigName) }

func (w *world) changeOtherConfig(namespace, name string) {
	w.write(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "editor", Time: new(thisSecond())}},
	}})
}

// context returns a context with a logger that writes to w.log.
func (w *world) context() context.Context {
	logger := ktesting.NewLogger(w.t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	w.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	return klog.NewContext(context.Background(), logger)
}

// run starts the controller, waits until it is idle, and returns a function that stops it.
func (w *world) run() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.context())
	controller, err := New(ctx, w.Clientset, w.options)
	require.NoError(w.t, err)
	controller.deletePod = w.deletePod
	if w.prepare != nil {
		w.prepare(controller)
	}
	w.controller = controller
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(w.t, controller.Run(ctx))
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}

// logged returns the lines of the log that start with one of the prefixes.
func (w *world) logged(prefixes ...string) []string {
	lines := []string{}
	for _, entry := range w.log.Data() {
		line := format(entry)
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// reconciles counts how often a Pod was reconciled.
func (w *world) reconciles(name string) int {
	return len(w.logged("Reconciling pod=" + namespace + "/" + name + " "))
}

// loggedErrors returns the errors in the log.
func (w *world) loggedErrors() []string {
	lines := []string{}
	for _, entry := range w.log.Data() {
		if entry.Type == ktesting.LogError {
			lines = append(lines, format(entry))
		}
	}
	return lines
}

// format formats a log entry as "message key=value…: error".
func format(entry ktesting.LogEntry) string {
	line := entry.Message
	values := append(slices.Clone(entry.WithKVList), entry.ParameterKVList...)
	for i := 0; i+1 < len(values); i += 2 {
		if values[i] != "worker" { // which worker it is, is not determined
			line += fmt.Sprintf(" %v=%v", values[i], values[i+1])
		}
	}
	if entry.Err != nil {
		line += ": " + entry.Err.Error()
	}
	return line
}

// advance advances the virtual clock and waits until all goroutines are blocked.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

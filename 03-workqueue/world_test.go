package workqueue

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
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

// mutationDetector has client-go compare what is in its caches with what it put there, once a second.
const mutationDetector = "KUBE_CACHE_MUTATION_DETECTOR"

func TestMain(m *testing.M) {
	// client-go has read it before we get here, so without it, begin again.
	if on, _ := strconv.ParseBool(os.Getenv(mutationDetector)); !on {
		program, err := os.Executable()
		if err == nil {
			os.Setenv(mutationDetector, "true")
			err = syscall.Exec(program, os.Args, os.Environ())
		}
		fmt.Fprintf(os.Stderr, "set %s=true to run these tests: %v\n", mutationDetector, err)
		os.Exit(1)
	}
	klog.SetLogger(klog.Logger{}) // what does not go to a test's own log: that the detector costs memory
	// The other handler waits since the last error, which may be years away in the virtual time of another test.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

func TestTheMutationDetectorIsOn(t *testing.T) {
	defer func(stdout *os.File) { os.Stdout = stdout }(os.Stdout)
	os.Stdout = nil // It prints what was changed, which is long.

	detector := cache.NewCacheMutationDetector("Pods") // Each informer of a factory makes itself one.
	pod := &corev1.Pod{}
	detector.AddObject(pod)
	pod.Labels = map[string]string{"seen": "yes"}
	ended := make(chan struct{})
	close(ended)
	require.PanicsWithValue(t, "cache Pods modified", func() { detector.Run(ended) })
}

const namespace = "shop"

// grace is how long a Pod takes to end.
const grace = 30 * time.Second

// world is a cluster in virtual time, without anybody who brings Pods back. The fake clientset alone has
// no resourceVersions, no field selectors and no preconditions, a Pod that is deleted is gone at once,
// and a watch never breaks and is never late. Of that, the world adds what informers and we rely on; it
// does not add the conflict of two writers. Nor has the fake clientset a REST client, so deletePod stands
// in for what the deleter does; the deleter has tests of its own.
type world struct {
	*fake.Clientset
	t          *testing.T
	log        ktesting.Buffer
	options    Options
	prepare    func(*Controller) // is called before it is run; nil for nothing
	controller *Controller       // the one that was run last

	mu      sync.Mutex
	objects clienttesting.ObjectTracker
	written map[string]int                        // resource → resourceVersion of its last write
	watches map[string]*watch.RaceFreeFakeWatcher // resource → the watch that was opened last
	lag     map[string]time.Duration              // resource → how late a watch brings each event

	trouble  func(context.Context, *corev1.Pod) error // what a request to delete a Pod meets on its way; nil for nothing
	requests []request                                // to delete a Pod, in order
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
		objects: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		written: map[string]int{},
		watches: map[string]*watch.RaceFreeFakeWatcher{},
		lag:     map[string]time.Duration{},
	}
	w.AddReactor("list", "*", w.answerList)
	w.AddReactor("*", "*", clienttesting.ObjectReaction(w.objects))
	w.AddWatchReactor("*", w.answerWatch)
	return w
}

// write creates or changes an object. It gets the resourceVersion that the tracker keeps beside it, and
// that a list of then has.
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

// deletePod marks a Pod, which is gone when its grace period is over, and returns its resourceVersion.
func (w *world) deletePod(ctx context.Context, pod *corev1.Pod) (string, error) {
	w.mu.Lock()
	w.requests = append(w.requests, request{string(pod.UID), time.Now()})
	trouble := w.trouble
	w.mu.Unlock()
	if trouble != nil {
		if err := trouble(ctx, pod); err != nil {
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
		time.AfterFunc(grace, func() { w.remove(current) })
	}
	return current.ResourceVersion, nil
}

// deleted returns the UIDs of the Pods that somebody asked to delete, in order.
func (w *world) deleted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	uids := []string{}
	for _, request := range w.requests {
		uids = append(uids, request.pod)
	}
	return uids
}

// requestsSince returns when somebody asked to delete a Pod.
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
	lag := w.lag[resource]
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
				select {
				case <-time.After(lag):
				case <-to.StopChan():
					return
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

// selected says whether a request with that field selector gets the object, or the error in its place.
func selected(selector fields.Selector, object runtime.Object) bool {
	named, err := meta.Accessor(object)
	return err != nil || selector.Matches(fields.Set{metav1.ObjectNameField: named.GetName()})
}

// breakWatch ends a watch as a server does that no longer knows what came before. The client lists anew,
// not at once but within a few seconds.
func (w *world) breakWatch(resource string) {
	w.watches[resource].Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
	synctest.Wait()
}

// delay makes requests take time.
func (w *world) delay(verb, resource string, d time.Duration) {
	w.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		// The fake clientset answers one request at a time, and virtual time stands still while
		// somebody waits for a lock.
		w.Unlock()
		time.Sleep(d)
		w.Lock()
		return false, nil, nil
	})
}

// slowToStop makes watches take time to end.
func (w *world) slowToStop(resource string, d time.Duration) {
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

// fail makes requests fail.
func (w *world) fail(verb, resource string, err error) {
	w.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, err
	})
}

func thisSecond() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// newPod returns a Pod that was created now and runs on node-0. Its UID is its name.
func newPod(namespace, name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name),
			Labels: map[string]string{"app": app}, CreationTimestamp: thisSecond(),
		},
		Spec: corev1.PodSpec{NodeName: "node-0"},
	}
}

// startPods starts Pods of the frontend now.
func (w *world) startPods(names ...string) {
	for _, name := range names {
		w.write(newPod(namespace, name, "frontend"))
	}
}

// pod returns a Pod as it is, which the cache may not know yet.
func (w *world) pod(name string) (*corev1.Pod, error) {
	pod, err := w.objects.Get(corev1.SchemeGroupVersion.WithResource("pods"), namespace, name)
	if err != nil {
		return nil, err
	}
	return pod.(*corev1.Pod), nil
}

// touch changes something of a Pod that is not our business.
func (w *world) touch(name string) {
	pod, err := w.pod(name)
	if assert.NoError(w.t, err) {
		pod.Status.Message = time.Now().String()
		w.write(pod)
	}
}

// remove is what the kubelet does when a Pod has ended.
func (w *world) remove(pod *corev1.Pod) {
	if current, err := w.pod(pod.Name); err != nil || current.UID != pod.UID {
		return // It has ended already.
	}
	pod.Status.Phase = corev1.PodSucceeded
	w.write(pod)
	assert.NoError(w.t, w.objects.Delete(corev1.SchemeGroupVersion.WithResource("pods"), pod.Namespace, pod.Name))
}

// changeConfig changes the ConfigMap now, or makes it.
func (w *world) changeConfig() { w.changeOtherConfig(namespace, ConfigName) }

func (w *world) changeOtherConfig(namespace, name string) {
	w.write(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "editor", Time: new(thisSecond())}},
	}})
}

// context returns a context whose log is the world's.
func (w *world) context() context.Context {
	logger := ktesting.NewLogger(w.t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	w.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	return klog.NewContext(context.Background(), logger)
}

// run runs the controller, and returns what stops it.
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

// said returns the lines of the log that begin with one of the prefixes.
func (w *world) said(prefixes ...string) []string {
	lines := []string{}
	for _, entry := range w.log.Data() {
		line := format(entry)
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// looks counts how often a worker looked at a Pod.
func (w *world) looks(name string) int { return len(w.said("Pod pod=" + namespace + "/" + name + " ")) }

// complaints returns the errors of the log.
func (w *world) complaints() []string {
	lines := []string{}
	for _, entry := range w.log.Data() {
		if entry.Type == ktesting.LogError {
			lines = append(lines, format(entry))
		}
	}
	return lines
}

// format returns a line as "message key=value…: error".
func format(entry ktesting.LogEntry) string {
	line := entry.Message
	values := append(slices.Clone(entry.WithKVList), entry.ParameterKVList...)
	for i := 0; i+1 < len(values); i += 2 {
		if values[i] != "worker" { // Any will do.
			line += fmt.Sprintf(" %v=%v", values[i], values[i+1])
		}
	}
	if entry.Err != nil {
		line += ": " + entry.Err.Error()
	}
	return line
}

// later lets virtual time pass.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

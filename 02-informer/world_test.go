package informer

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
// and a watch never breaks. Of that, the world adds what informers and we rely on; it does not add the
// conflict of two writers.
type world struct {
	*fake.Clientset
	t     *testing.T
	log   ktesting.Buffer
	edits int // of ConfigMaps

	mu      sync.Mutex
	objects clienttesting.ObjectTracker
	written map[string]int                        // resource → resourceVersion of its last write
	watches map[string]*watch.RaceFreeFakeWatcher // resource → the watch that was opened last
	lag     map[string]time.Duration              // resource → how late a watch brings each event
	asked   []string                              // names of Pods, see deleted
}

func newWorld(t *testing.T) *world {
	w := &world{
		Clientset: &fake.Clientset{},
		t:         t,
		objects:   clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		written:   map[string]int{},
		watches:   map[string]*watch.RaceFreeFakeWatcher{},
		lag:       map[string]time.Duration{},
	}
	w.AddReactor("delete", "pods", w.answerDelete)
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

// answerDelete marks a Pod. It is gone when its grace period is over.
func (w *world) answerDelete(action clienttesting.Action) (bool, runtime.Object, error) {
	request := action.(clienttesting.DeleteAction)
	w.mu.Lock()
	w.asked = append(w.asked, request.GetName())
	w.mu.Unlock()
	pod, err := w.pod(request.GetNamespace(), request.GetName())
	if err != nil {
		return true, nil, err
	}
	if only := request.GetDeleteOptions().Preconditions; only != nil && only.UID != nil && *only.UID != pod.UID {
		return true, nil, apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("the UID is %s", pod.UID))
	}
	pod.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(grace)))
	w.write(pod)
	time.AfterFunc(grace, func() { w.remove(pod) })
	return true, nil, nil
}

// deleted returns the Pods that somebody asked to delete, in order.
func (w *world) deleted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
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

// startPods starts Pods of the frontend.
func (w *world) startPods(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.write(newPod(namespace, name, "frontend"))
	}
}

func (w *world) pod(namespace, name string) (*corev1.Pod, error) {
	pod, err := w.objects.Get(corev1.SchemeGroupVersion.WithResource("pods"), namespace, name)
	if err != nil {
		return nil, err
	}
	return pod.(*corev1.Pod), nil
}

// remove is what the kubelet does when a Pod has ended.
func (w *world) remove(pod *corev1.Pod) {
	if current, err := w.pod(pod.Namespace, pod.Name); err != nil || current.UID != pod.UID {
		return // It has ended already.
	}
	pod.Status.Phase = corev1.PodSucceeded
	w.write(pod)
	assert.NoError(w.t, w.objects.Delete(corev1.SchemeGroupVersion.WithResource("pods"), pod.Namespace, pod.Name))
}

// changeConfig writes a ConfigMap with new data.
func (w *world) changeConfig(namespace, name string) {
	w.t.Helper()
	w.edits++
	w.write(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"edits": strconv.Itoa(w.edits)},
	})
}

// context returns a context whose log is the world's.
func (w *world) context() context.Context {
	logger := ktesting.NewLogger(w.t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	w.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	return klog.NewContext(context.Background(), logger)
}

// run runs the controller, and returns what stops it.
func (w *world) run(resync time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(w.context())
	done := make(chan struct{})
	controller := &Controller{Client: w.Clientset, Namespace: namespace, Resync: resync}
	go func() {
		defer close(done)
		if err := controller.Run(ctx); err != nil {
			w.t.Error("Run:", err)
		}
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
	for i := 0; i+1 < len(entry.ParameterKVList); i += 2 {
		line += fmt.Sprintf(" %v=%v", entry.ParameterKVList[i], entry.ParameterKVList[i+1])
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

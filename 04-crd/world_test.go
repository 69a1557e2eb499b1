package crd_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	"example.com/controllers/crd/generated/clientset/versioned/fake"
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

	detector := cache.NewCacheMutationDetector("Networks") // Each informer of a factory makes itself one.
	network := &samplecrdv1.Network{}
	detector.AddObject(network)
	network.Labels = map[string]string{"seen": "yes"}
	ended := make(chan struct{})
	close(ended)
	require.PanicsWithValue(t, "cache Networks modified", func() { detector.Run(ended) })
}

const namespace = "shop"

// cloud is a backend that has a network for each UID.
type cloud struct {
	check func(verb string, n *samplecrdv1.Network) // is called before each call

	mu      sync.Mutex
	trouble func(context.Context) error // what a call meets on its way; nil for nothing
	there   map[crd.Owner]string        // the gateway of each network
	calls   []call
}

type call struct {
	verb string
	name string // the Network's
	at   time.Time
}

func ownerOf(n *samplecrdv1.Network) crd.Owner {
	return crd.Owner{Namespace: n.Namespace, Name: n.Name, UID: n.UID}
}

func (c *cloud) begin(ctx context.Context, verb string, n *samplecrdv1.Network) error {
	c.check(verb, n)
	c.mu.Lock()
	c.calls = append(c.calls, call{verb, n.Name, time.Now()})
	trouble := c.trouble
	c.mu.Unlock()
	if trouble == nil {
		return nil
	}
	return trouble(ctx)
}

func (c *cloud) Ensure(ctx context.Context, n *samplecrdv1.Network) (crd.Made, error) {
	if err := c.begin(ctx, "ensure", n); err != nil {
		return crd.Made{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[ownerOf(n)] = n.Spec.Gateway
	return crd.Made{NetworkID: "n-" + string(n.UID), SubnetID: "s-" + string(n.UID)}, nil
}

func (c *cloud) Delete(ctx context.Context, n *samplecrdv1.Network) error {
	if err := c.begin(ctx, "delete", n); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.there, ownerOf(n))
	return nil
}

// Owners is asked now and then, and is not among the calls.
func (c *cloud) Owners(ctx context.Context) ([]crd.Owner, error) {
	c.mu.Lock()
	trouble := c.trouble
	c.mu.Unlock()
	if trouble != nil {
		if err := trouble(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	owners := slices.Collect(maps.Keys(c.there))
	slices.SortFunc(owners, func(a, b crd.Owner) int { return cmp.Compare(a.UID, b.UID) })
	return owners, nil
}

// leave puts something there of which nobody in the cluster speaks.
func (c *cloud) leave(name string, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[crd.Owner{Namespace: namespace, Name: name, UID: uid}] = "10.0.0.1"
}

// meets makes all calls meet with trouble.
func (c *cloud) meets(trouble func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = trouble
}

// fails makes all calls fail; not, if the error is nil.
func (c *cloud) fails(with error) { c.meets(func(context.Context) error { return with }) }

// refusesDifferently makes all calls fail with a refusal whose message has a number, as that of a request.
func (c *cloud) refusesDifferently() {
	var requests atomic.Int64
	c.meets(func(context.Context) error {
		return &crd.RefusedError{Reason: samplecrdv1.ReasonQuotaExceeded, Message: fmt.Sprintf("no more networks (req-%d)", requests.Add(1))}
	})
}

// gateways returns the gateway of each network, by the UID of its owner.
func (c *cloud) gateways() map[types.UID]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	gateways := map[types.UID]string{}
	for owner, gateway := range c.there {
		gateways[owner.UID] = gateway
	}
	return gateways
}

// lose takes away all that is there, behind the controller's back.
func (c *cloud) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.there)
}

// took returns the calls since it was asked last.
func (c *cloud) took() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// verbs returns what the calls were, without those that repeat the one before.
func verbs(calls []call) []string {
	verbs := []string{}
	for _, call := range calls {
		verbs = append(verbs, call.verb)
	}
	return slices.Compact(verbs)
}

// pauses returns the times between the calls.
func pauses(calls []call) []time.Duration {
	var pauses []time.Duration
	for i := 1; i < len(calls); i++ {
		pauses = append(pauses, calls[i].at.Sub(calls[i-1].at))
	}
	return pauses
}

// taking returns a trouble with which a call takes time, if nobody gives up on it.
func taking(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// world is an API server and a cloud, in virtual time. The fake clientset alone has no resourceVersions, no
// generations and no preconditions, an object that is deleted is gone at once, and a watch is never late. Of
// that, the world adds what informers and the controller rely on. It also checks what must hold at any time:
// the controller acts on nothing older than its own writes, nothing is made without the finalizer, and the
// finalizer stays while something is there.
type world struct {
	*fake.Clientset // Its actions are the controller's.
	*cloud
	t          *testing.T
	kube       *kubefake.Clientset
	options    crd.Options
	controller *crd.Controller      // the one that was run last
	wrote      map[types.UID]string // resourceVersion of the controller's last write
	busy       int                  // the controller's writes in this instant
	instant    time.Time            // that one
	late       atomic.Value         // chan struct{}; when it is closed, the watch goes on
	log        ktesting.Buffer
}

var (
	resource = samplecrdv1.SchemeGroupVersion.WithResource("networks")
	kind     = samplecrdv1.SchemeGroupVersion.WithKind("Network")
)

func newWorld(t *testing.T) *world {
	w := &world{
		Clientset: fake.NewClientset(), cloud: &cloud{there: map[crd.Owner]string{}}, kube: kubefake.NewClientset(), t: t,
		options: crd.Options{
			Namespace: namespace, Workers: 2, Grace: 10 * time.Second,
			Backoff: 100 * time.Millisecond, MaxBackoff: time.Minute, Recheck: 10 * time.Minute,
		},
		wrote: map[types.UID]string{},
	}
	w.check = w.checkCall
	w.PrependReactor("patch", "networks", w.answerPatch)
	w.PrependWatchReactor("networks", w.answerWatch)
	w.delayWatch()()
	return w
}

// run runs the controller, and returns what stops it.
func (w *world) run() (stop func()) {
	w.t.Helper()
	logger := ktesting.NewLogger(w.t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	w.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	controller, err := crd.New(ctx, w.kube, w, w.cloud, w.options)
	require.NoError(w.t, err)
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

// inWorld plays a story in virtual time, with the controller at work.
func inWorld(t *testing.T, story func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		defer stop()
		story(t, w)
	})
}

// later lets virtual time pass.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// get returns a Network as it is, which the cache may not know yet.
func (w *world) get(name string) (*samplecrdv1.Network, error) {
	object, err := w.Tracker().Get(resource, namespace, name)
	if err != nil {
		return nil, err
	}
	return object.(*samplecrdv1.Network), nil
}

// now returns a Network as it is, and its condition.
func (w *world) now(name string) (*samplecrdv1.Network, metav1.Condition) {
	w.t.Helper()
	n, err := w.get(name)
	require.NoError(w.t, err)
	ready := meta.FindStatusCondition(n.Status.Conditions, samplecrdv1.ConditionReady)
	require.NotNil(w.t, ready)
	require.Len(w.t, n.Status.Conditions, 1)
	return n, *ready
}

func (w *world) nextResourceVersion() string {
	list, err := w.Tracker().List(resource, kind, namespace)
	assert.NoError(w.t, err)
	last, err := strconv.Atoi(list.(*samplecrdv1.NetworkList).ResourceVersion)
	assert.NoError(w.t, err)
	return strconv.Itoa(last + 1)
}

// create creates a Network, as a person does. Its UID is its name.
func (w *world) create(name string, finalizers ...string) {
	w.t.Helper()
	w.Lock()
	defer w.Unlock()
	n := &samplecrdv1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name), Generation: 1, Finalizers: finalizers,
			ResourceVersion: w.nextResourceVersion(), CreationTimestamp: metav1.Now(),
		},
		Spec: samplecrdv1.NetworkSpec{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
	}
	require.NoError(w.t, w.Tracker().Create(resource, n, namespace))
}

// change changes a Network, as others do.
func (w *world) change(name string, change func(n *samplecrdv1.Network)) {
	w.t.Helper()
	w.Lock()
	defer w.Unlock()
	n, err := w.get(name)
	require.NoError(w.t, err)
	before := n.DeepCopy()
	change(n)
	if n.Spec != before.Spec || n.DeletionTimestamp != before.DeletionTimestamp && before.DeletionTimestamp == nil {
		n.Generation++
	}
	n.ResourceVersion = w.nextResourceVersion()
	require.NoError(w.t, w.Tracker().Update(resource, n, namespace))
	require.NoError(w.t, w.collect(n))
}

// delete deletes a Network. It stays until it has no finalizers.
func (w *world) delete(name string) {
	w.t.Helper()
	w.change(name, func(n *samplecrdv1.Network) { n.DeletionTimestamp = new(metav1.Now()) })
}

// collect removes a Network that is deleted and that nobody wants to keep.
func (w *world) collect(n *samplecrdv1.Network) error {
	if !isGone(n) {
		return nil
	}
	return w.Tracker().Delete(resource, n.Namespace, n.Name)
}

func isGone(n *samplecrdv1.Network) bool { return n.DeletionTimestamp != nil && len(n.Finalizers) == 0 }

// answerPatch does what is the controller's way to write.
func (w *world) answerPatch(action clienttesting.Action) (bool, runtime.Object, error) {
	// While it writes again and again, virtual time stands still.
	if now := time.Now(); now != w.instant && w.busy <= 20 {
		w.instant, w.busy = now, 0
	}
	if w.busy++; w.busy > 20 {
		w.t.Error("it writes again and again")
		return true, nil, apierrors.NewTooManyRequests("slow down", 1)
	}
	request := action.(clienttesting.PatchActionImpl)
	before, err := w.get(request.Name)
	if err != nil {
		return true, nil, err // Apply to a subresource does not create.
	}
	var patch map[string]any
	assert.NoError(w.t, json.Unmarshal(request.Patch, &patch))
	metadata, _ := patch["metadata"].(map[string]any)
	if uid := metadata["uid"]; uid != nil && uid != string(before.UID) {
		return true, nil, apierrors.NewConflict(resource.GroupResource(), request.Name, errors.New("the UID is another"))
	}
	if version := metadata["resourceVersion"]; version != nil && version != before.ResourceVersion {
		return true, nil, apierrors.NewConflict(resource.GroupResource(), request.Name, errors.New("it has been changed"))
	}
	metadata["resourceVersion"] = w.nextResourceVersion()
	request.Patch, err = json.Marshal(patch)
	assert.NoError(w.t, err)
	_, object, err := clienttesting.ObjectReaction(w.Tracker())(request)
	if err != nil {
		return true, nil, err
	}
	after := object.(*samplecrdv1.Network)
	w.wrote[after.UID] = after.ResourceVersion
	if request.Subresource == "" {
		assert.Equal(w.t, before.Status, after.Status, "the status is a resource of its own")
	}
	if slices.Contains(before.Finalizers, crd.Finalizer) && !slices.Contains(after.Finalizers, crd.Finalizer) {
		assert.NotContains(w.t, w.gateways(), after.UID, "the finalizer is taken off, and something is there")
	}
	return true, after, w.collect(after)
}

// checkCall checks what must hold when the controller turns to the cloud.
func (w *world) checkCall(verb string, n *samplecrdv1.Network) {
	there, err := w.get(n.Name)
	isThere := err == nil && there.UID == n.UID && there.DeletionTimestamp == nil
	w.RLock()
	defer w.RUnlock()
	if verb == "delete" {
		assert.False(w.t, isThere, "it deletes what is a Network's that is there")
		return
	}
	if wrote := w.wrote[n.UID]; wrote != "" {
		assert.False(w.t, older(n.ResourceVersion, wrote), "it acts on what it has changed itself since")
	}
	if n.DeletionTimestamp == nil {
		assert.Contains(w.t, n.Finalizers, crd.Finalizer, "something is made, and nothing keeps the Network")
	}
}

func older(version, than string) bool {
	a, _ := strconv.Atoi(version)
	b, _ := strconv.Atoi(than)
	return a < b
}

// answerWatch opens a watch that may be late. Of a Network that goes, the tracker brings a change first,
// which an API server does not.
func (w *world) answerWatch(action clienttesting.Action) (bool, watch.Interface, error) {
	request := action.(clienttesting.WatchActionImpl)
	from, err := w.Tracker().Watch(resource, request.GetNamespace(), request.ListOptions)
	if err != nil {
		return true, nil, err
	}
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer from.Stop()
		for {
			select {
			case event := <-from.ResultChan():
				if event.Type == watch.Modified && isGone(event.Object.(*samplecrdv1.Network)) {
					continue
				}
				select {
				case <-w.late.Load().(chan struct{}):
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

// delayWatch makes the watch bring nothing, until it is told to go on.
func (w *world) delayWatch() (goOn func()) {
	late := make(chan struct{})
	w.late.Store(late)
	return func() { close(late) }
}

// bringOne makes a watch that is late bring one event.
func (w *world) bringOne(goOn func()) (goOnWithTheRest func()) {
	synctest.Wait()
	later := w.delayWatch()
	goOn()
	synctest.Wait()
	return later
}

// fail makes the first requests fail. If they are done nevertheless, only the answer is lost.
func (w *world) fail(verb, subresource string, times int, done bool, err error) {
	w.PrependReactor(verb, "networks", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != subresource || times == 0 {
			return false, nil, nil
		}
		times--
		if done {
			wrote := maps.Clone(w.wrote)
			if _, _, err := w.answerPatch(action); err != nil {
				return true, nil, err
			}
			w.wrote = wrote // The controller does not know.
		}
		return true, nil, err
	})
}

// delay makes requests take time.
func (w *world) delay(verb string, d time.Duration) {
	w.PrependReactor(verb, "networks", func(clienttesting.Action) (bool, runtime.Object, error) {
		// The fake clientset answers one request at a time, and virtual time stands still while
		// somebody waits for a lock.
		w.Unlock()
		time.Sleep(d)
		w.Lock()
		return false, nil, nil
	})
}

// slowToStop makes the watch take time to end.
func (w *world) slowToStop(d time.Duration) {
	w.PrependWatchReactor("networks", func(action clienttesting.Action) (bool, watch.Interface, error) {
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

// refuse makes all requests of that kind fail.
func (w *world) refuse(verb string, err error) {
	w.PrependReactor(verb, "networks", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// writes counts the controller's writes to Networks, by verb and subresource, and forgets them.
func (w *world) writes() map[string]int {
	writes := map[string]int{}
	for _, action := range w.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "watch" {
			writes[verb+" "+action.GetSubresource()]++
		}
	}
	w.ClearActions()
	return writes
}

// announced returns the Events, in order.
func (w *world) announced() []string {
	w.t.Helper()
	list, err := w.kube.EventsV1().Events(namespace).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	lines := []string{}
	for _, event := range list.Items {
		require.Nil(w.t, event.Series, "it is said again and again: %s", event.Note)
		require.Equal(w.t, "Network", event.Regarding.Kind)
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", event.Regarding.Name, event.Type, event.Reason, event.Note))
	}
	return lines
}

// complaints returns the errors of the log.
func (w *world) complaints() []string {
	lines := []string{}
	for _, entry := range w.log.Data() {
		if entry.Type == ktesting.LogError {
			lines = append(lines, fmt.Sprint(entry.Message, ": ", entry.Err))
		}
	}
	return lines
}

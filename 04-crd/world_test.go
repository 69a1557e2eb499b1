package crd_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	"example.com/controllers/crd/generated/clientset/versioned/fake"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // drops what is not logged to a test's own logger: a warning of the mutation detector
	// The second default handler waits until a millisecond after the last error, which in another test's virtual time
	// can be years away.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

const namespace = "shop"

// cloud is a backend in memory.
type cloud struct {
	check func(verb string, n *samplecrdv1.Network) // called before each call

	mu       sync.Mutex
	hook     func(context.Context) error // called with each call; its error fails the call; nil for none
	networks map[crd.Owner]string        // gateways
	suffix   string                      // of the IDs of networks and subnets
	calls    []call                      // since takeCalls was called last
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
	hook := c.hook
	c.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(ctx)
}

func (c *cloud) Ensure(ctx context.Context, n *samplecrdv1.Network) (crd.IDs, error) {
	if err := c.begin(ctx, "ensure", n); err != nil {
		return crd.IDs{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.networks[ownerOf(n)] = n.Spec.Gateway
	return crd.IDs{NetworkID: "n-" + string(n.UID) + c.suffix, SubnetID: "s-" + string(n.UID) + c.suffix}, nil
}

func (c *cloud) Delete(ctx context.Context, n *samplecrdv1.Network) error {
	if err := c.begin(ctx, "delete", n); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.networks, ownerOf(n))
	return nil
}

// Owners is not recorded as a call.
func (c *cloud) Owners(ctx context.Context) ([]crd.Owner, error) {
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	if hook != nil {
		if err := hook(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	owners := slices.Collect(maps.Keys(c.networks))
	slices.SortFunc(owners, func(a, b crd.Owner) int { return cmp.Compare(a.UID, b.UID) })
	return owners, nil
}

// addOrphan adds a network to the cloud that the controller under test did not create.
func (c *cloud) addOrphan(name string, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.networks[crd.Owner{Namespace: namespace, Name: name, UID: uid}] = "10.0.0.1"
}

// addAnonymous adds a network to the cloud that does not tell the name of the Network with that UID.
func (c *cloud) addAnonymous(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.networks[crd.Owner{UID: uid}] = "10.0.0.1"
}

// intercept has hook called with each call.
func (c *cloud) intercept(hook func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// failAll makes all calls fail with err, or succeed if err is nil.
func (c *cloud) failAll(err error) { c.intercept(func(context.Context) error { return err }) }

// refuseWithRequestIDs makes all calls fail with a refusal whose message is different each time.
func (c *cloud) refuseWithRequestIDs() {
	var requests atomic.Int64
	c.intercept(func(context.Context) error {
		return &crd.RefusedError{Reason: samplecrdv1.ReasonQuotaExceeded, Message: fmt.Sprintf("no more networks (req-%d)", requests.Add(1))}
	})
}

// gateways returns the gateway of each network, by the UID of its owner.
func (c *cloud) gateways() map[types.UID]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	gateways := map[types.UID]string{}
	for owner, gateway := range c.networks {
		gateways[owner.UID] = gateway
	}
	return gateways
}

// loseAll deletes all networks, as somebody else could.
func (c *cloud) loseAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.networks)
}

// replaceAll makes all networks and subnets others, whose IDs end in suffix.
func (c *cloud) replaceAll(suffix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suffix = suffix
}

// takeCalls returns the calls since it was called last.
func (c *cloud) takeCalls() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// verbs returns the verbs of the calls, with repetitions removed.
func verbs(calls []call) []string {
	verbs := []string{}
	for _, call := range calls {
		verbs = append(verbs, call.verb)
	}
	return slices.Compact(verbs)
}

// intervals returns the times between consecutive calls.
func intervals(calls []call) []time.Duration {
	var between []time.Duration
	for i := 1; i < len(calls); i++ {
		between = append(between, calls[i].at.Sub(calls[i-1].at))
	}
	return between
}

// takes returns a hook that makes a call take that long, or until its context ends.
func takes(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// world is an API server and a cloud in virtual time. A fake clientset has no resourceVersions, generations,
// preconditions or finalizers, and its watches are never late; world adds what informers and the controller rely on. It
// also checks invariants: the controller does not act on an object that is older than its own last write, it creates
// nothing in the cloud before the finalizer is stored, and it keeps the finalizer until the cloud has deleted everything.
type world struct {
	*fake.Clientset // its actions are the controller's requests
	*cloud
	t          *testing.T
	kube       *kubefake.Clientset
	options    crd.Options
	controller *crd.Controller      // the one that run started last
	wrote      map[types.UID]string // resourceVersion of the controller's last write, where it got the response
	instant    time.Time            // of the last write
	busy       int                  // number of writes in that instant of virtual time
	late       atomic.Value         // chan struct{}; the watch delivers no events until it is closed
	log        ktesting.Buffer      // of the controller that run started last
}

var (
	resource = samplecrdv1.SchemeGroupVersion.WithResource("networks")
	kind     = samplecrdv1.SchemeGroupVersion.WithKind("Network")
)

func newWorld(t *testing.T) *world {
	w := &world{
		Clientset: fake.NewClientset(), cloud: &cloud{networks: map[crd.Owner]string{}}, kube: kubefake.NewClientset(), t: t,
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

// run starts a controller and returns a function that stops it and waits until it has ended.
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

// withController runs a test in virtual time while a controller runs.
func withController(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		defer stop()
		test(t, w)
	})
}

// advance advances virtual time and waits until all goroutines are idle.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// get returns a Network as the API server has it.
func (w *world) get(name string) (*samplecrdv1.Network, error) {
	object, err := w.Tracker().Get(resource, namespace, name)
	if err != nil {
		return nil, err
	}
	return object.(*samplecrdv1.Network), nil
}

// current returns a Network as the API server has it, and its condition.
func (w *world) current(name string) (*samplecrdv1.Network, metav1.Condition) {
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

// create creates a Network as a user would. Its UID is its name.
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

// change updates a Network as a user, or another controller, would.
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

// delete requests the deletion of a Network. As in an API server, it exists as long as it has finalizers.
func (w *world) delete(name string) {
	w.t.Helper()
	w.change(name, func(n *samplecrdv1.Network) { n.DeletionTimestamp = new(metav1.Now()) })
}

// collect removes a Network whose deletion was requested and that has no finalizers.
func (w *world) collect(n *samplecrdv1.Network) error {
	if !isGone(n) {
		return nil
	}
	return w.Tracker().Delete(resource, n.Namespace, n.Name)
}

func isGone(n *samplecrdv1.Network) bool { return n.DeletionTimestamp != nil && len(n.Finalizers) == 0 }

// answerPatch is a reactor for patches and applies.
func (w *world) answerPatch(action clienttesting.Action) (bool, runtime.Object, error) {
	// A hot loop never lets virtual time advance, so the test would hang.
	if now := time.Now(); now != w.instant && w.busy <= 20 {
		w.instant, w.busy = now, 0
	}
	if w.busy++; w.busy > 20 {
		w.t.Error("hot loop: more than 20 writes in one instant")
		return true, nil, apierrors.NewTooManyRequests("slow down", 1)
	}
	request := action.(clienttesting.PatchActionImpl)
	before, err := w.get(request.Name)
	if err != nil {
		return true, nil, err // an apply to a subresource does not create the object
	}
	var patch map[string]any
	assert.NoError(w.t, json.Unmarshal(request.Patch, &patch))
	metadata, _ := patch["metadata"].(map[string]any)
	// As the real API server does: see test/status_test.go. It ignores the UID in a patch of a custom resource's status.
	if uid := metadata["uid"]; uid != nil && uid != string(before.UID) && request.Subresource == "" {
		return true, nil, apierrors.NewInvalid(samplecrdv1.SchemeGroupVersion.WithKind("Network").GroupKind(), request.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable")})
	}
	delete(metadata, "uid")
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
		assert.Equal(w.t, before.Status, after.Status, "a write to the main resource must not change the status")
	}
	if slices.Contains(before.Finalizers, crd.Finalizer) && !slices.Contains(after.Finalizers, crd.Finalizer) {
		assert.NotContains(w.t, w.gateways(), after.UID, "the finalizer was removed before the network was deleted")
	}
	return true, after, w.collect(after)
}

// checkCall checks the invariants at a call to the cloud.
func (w *world) checkCall(verb string, n *samplecrdv1.Network) {
	existing, err := w.get(n.Name)
	isAlive := err == nil && existing.UID == n.UID && existing.DeletionTimestamp == nil
	w.RLock()
	defer w.RUnlock()
	if verb == "delete" {
		assert.False(w.t, isAlive, "deletes the network of a Network that exists")
		return
	}
	if wrote := w.wrote[n.UID]; wrote != "" {
		assert.False(w.t, older(n.ResourceVersion, wrote), "acts on a cache that is older than its own last write")
	}
	if n.DeletionTimestamp == nil {
		assert.Contains(w.t, n.Finalizers, crd.Finalizer, "creates a network for a Network without the finalizer")
	}
}

func older(version, than string) bool {
	a, _ := strconv.Atoi(version)
	b, _ := strconv.Atoi(than)
	return a < b
}

// answerWatch opens a watch that can be delayed. When the last finalizer is removed, the tracker sends a MODIFIED event
// before the DELETED event; an API server does not, so it is dropped.
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

// delayWatch holds all events of the watch back until resume is called.
func (w *world) delayWatch() (resume func()) {
	late := make(chan struct{})
	w.late.Store(late)
	return func() { close(late) }
}

// deliverOne delivers one event of a delayed watch.
func (w *world) deliverOne(resume func()) (resumeRest func()) {
	synctest.Wait()
	next := w.delayWatch()
	resume()
	synctest.Wait()
	return next
}

// fail makes the next requests fail. If done is true, the API server carries them out and only the response is lost.
func (w *world) fail(verb, subresource string, times int, done bool, err error) {
	w.PrependReactor(verb, "networks", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != subresource || times == 0 {
			return false, nil, nil
		}
		times--
		if done {
			if _, _, err := w.answerPatch(action); err != nil {
				return true, nil, err
			}
		}
		return true, nil, err
	})
}

// delay makes requests with that verb take that long.
func (w *world) delay(verb string, d time.Duration) {
	w.PrependReactor(verb, "networks", func(clienttesting.Action) (bool, runtime.Object, error) {
		// The fake clientset holds a lock while it serves a request, and virtual time does not advance while a goroutine
		// waits for a lock.
		w.Unlock()
		time.Sleep(d)
		w.Lock()
		return false, nil, nil
	})
}

// slowToStop makes stopping the watch take that long.
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

// refuse makes all requests with that verb fail.
func (w *world) refuse(verb string, err error) {
	w.PrependReactor(verb, "networks", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// takeWrites counts the controller's requests for Networks since it was called last, by verb and subresource, without
// lists and watches.
func (w *world) takeWrites() map[string]int {
	writes := map[string]int{}
	for _, action := range w.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "watch" {
			writes[verb+" "+action.GetSubresource()]++
		}
	}
	w.ClearActions()
	return writes
}

// events returns all Events, in order.
func (w *world) events() []string {
	w.t.Helper()
	list, err := w.kube.EventsV1().Events(namespace).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	lines := []string{}
	for _, event := range list.Items {
		require.Nil(w.t, event.Series, "it is eventsBefore again and again: %s", event.Note)
		require.Equal(w.t, "Network", event.Regarding.Kind)
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", event.Regarding.Name, event.Type, event.Reason, event.Note))
	}
	return lines
}

// logged returns the value of a key in each entry of the log with that message.
func (w *world) logged(message, key string) []any {
	values := []any{}
	for _, entry := range w.log.Data() {
		if entry.Message != message {
			continue
		}
		all := append(slices.Clone(entry.WithKVList), entry.ParameterKVList...)
		for i := 0; i+1 < len(all); i += 2 {
			if all[i] == key {
				values = append(values, all[i+1])
			}
		}
	}
	return values
}

// loggedErrors returns the errors that the controller has logged.
func (w *world) loggedErrors() []string {
	lines := []string{}
	for _, entry := range w.log.Data() {
		if entry.Type == ktesting.LogError {
			lines = append(lines, fmt.Sprint(entry.Message, ": ", entry.Err))
		}
	}
	return lines
}

package reboot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/controllers/reboot/agent"
	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/policy"
	"example.com/controllers/reboot/protocol"
)

const namespace = "reboot-operator"

var errDown = errors.New("connection refused")

var (
	nodeResource      = corev1.SchemeGroupVersion.WithResource("nodes")
	podResource       = corev1.SchemeGroupVersion.WithResource("pods")
	configMapResource = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// world is a cluster with machines, in virtual time. The fake clientset alone knows no resourceVersions, preconditions,
// field selectors or evictions, and its watches are never late; the world adds them. It checks with each write that no
// admission exceeds the budget.
type world struct {
	t       *testing.T
	options Options
	agent   agent.Options // without what differs from machine to machine
	boot    time.Duration // how long a machine takes to reboot
	// most is how many Nodes may be unavailable after an admission; 0 to check nothing.
	most int

	mu        sync.Mutex
	objects   clienttesting.ObjectTracker
	version   int // the last resourceVersion
	machines  map[string]*machine
	processes []*process
	writes    int             // of nodes and configmaps, by all processes
	onWrite   func(*process)  // called after each of them; may be nil
	onLedger  func()          // called before each update of a configmap; may be nil
	onGetNode func()          // called before each get of a Node; may be nil
	onEvict   func()          // called before each eviction; may be nil
	evictErr  error           // the answer to each eviction; nil to carry it out
	evictions []eviction      // that were asked for, in order
	protected map[string]bool // names of Pods that a PodDisruptionBudget protects
	grace     time.Duration   // how long a Pod takes to terminate
	events    []string        // "Node Type Reason Note"
	down      bool            // no process reaches the API server
	history   []revision      // of all objects, in order
	watchers  map[*watcher]bool
}

// revision is one entry in the world's history.
type revision struct {
	version  int
	resource schema.GroupVersionResource
	event    watch.Event
}

// watcher is one watch that a process has open.
type watcher struct {
	resource     schema.GroupVersionResource
	restrictions clienttesting.ListRestrictions
	lag          time.Duration
	queue        chan late
}

// late is an event, and when it is delivered.
type late struct {
	event watch.Event
	at    time.Time
}

type eviction struct {
	pod string
	at  time.Time
}

// machine is what a Node stands for.
type machine struct {
	w         *world
	name      string
	bootID    int
	asked     int  // times that it was asked to reboot
	fails     int  // how many requests for a reboot fail
	broken    bool // the reboot does nothing
	sameID    bool // it comes back with the boot ID that it had
	fast      bool // nobody notices that it was away
	off       bool // it does not come back
	rebooting bool
	agent     *process
}

// process is a controller or an agent.
type process struct {
	*fake.Clientset
	w      *world
	name   string
	lag    time.Duration // of its watches of Nodes
	log    ktesting.Buffer
	cancel context.CancelFunc
	done   chan struct{}
	dead   bool // nothing of it reaches the API server; guarded by w.mu

	ready     func() bool
	collector prometheus.Collector // nil for an agent
}

// PrependReactor waits until nobody uses the clientset, which does not guard its reactors.
func (p *process) PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc) {
	synctest.Wait()
	p.Clientset.PrependReactor(verb, resource, reaction)
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t,
		options: Options{
			Policy:    policy.Policy{MaxUnavailable: intstr.FromInt32(1), MaxPerDomain: intstr.FromInt(1), Selector: labels.Everything()},
			Namespace: namespace, Ledger: "ledger",
			DrainTimeout: 10 * time.Minute, AgentTimeout: 5 * time.Minute, RebootTimeout: 10 * time.Minute,
			RetryInterval: 5 * time.Minute, MaxRetryInterval: time.Hour,
			Workers: 4, Backoff: 100 * time.Millisecond, MaxBackoff: 10 * time.Second, Grace: 5 * time.Second,
		},
		agent:     agent.Options{RebootRetry: 2 * time.Minute, Backoff: time.Second, MaxBackoff: 10 * time.Second},
		boot:      30 * time.Second,
		most:      1,
		objects:   clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		version:   1,
		machines:  map[string]*machine{},
		protected: map[string]bool{},
		grace:     10 * time.Second,
		watchers:  map[*watcher]bool{},
	}
	return w
}

// inWorld runs a test in virtual time, and stops all processes at its end.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() {
			for _, p := range w.running() {
				p.stop()
			}
		}()
		test(t, w)
	})
}

func (w *world) running() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

// start starts a process. registered is called before it runs, with w.mu held, if it is not nil.
func (w *world) start(name string, lag time.Duration, registered func(p *process), run func(ctx context.Context, p *process) error) *process {
	logger := ktesting.NewLogger(w.t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	p := &process{
		Clientset: &fake.Clientset{}, w: w, name: name, lag: lag, cancel: cancel, done: make(chan struct{}),
		log: logger.GetSink().(ktesting.Underlier).GetBuffer(),
	}
	p.AddReactor("*", "*", p.react)
	p.AddWatchReactor("*", p.watch)
	w.locked(func() {
		w.processes = append(w.processes, p)
		if registered != nil {
			registered(p)
		}
	})
	go func() {
		defer close(p.done)
		assert.NoError(w.t, run(ctx, p))
	}()
	return p
}

// stop ends a process as SIGTERM does.
func (p *process) stop() {
	p.cancel()
	<-p.done
}

// errors returns the lines that a process has logged as errors.
func (p *process) errors() []string {
	var errors []string
	for line := range strings.Lines(p.log.String()) {
		if strings.HasPrefix(line, "E") {
			errors = append(errors, line)
		}
	}
	return errors
}

// startController starts a controller whose watch of Nodes is late.
func (w *world) startController(lag time.Duration) *process {
	options := w.options
	return w.start("controller", lag, nil, func(ctx context.Context, p *process) error {
		c, err := New(ctx, p, options)
		if err != nil {
			return err
		}
		p.ready, p.collector = c.Ready, c.Metrics()
		return c.Run(ctx)
	})
}

// startAgent starts the agent of a machine. w.mu must not be held.
func (m *machine) startAgent() {
	options := m.w.agent
	options.NodeName, options.BootID, options.Rebooter = m.name, m, m
	m.w.start("agent of "+m.name, 0, func(p *process) { m.agent = p }, func(ctx context.Context, p *process) error {
		a, err := agent.New(ctx, p, options)
		if err != nil {
			return err
		}
		p.ready = a.Ready
		return a.Run(ctx)
	})
}

// Read implements BootIDSource.
func (m *machine) Read(context.Context) (string, error) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return fmt.Sprint("boot-", m.bootID), nil
}

// Reboot implements Rebooter.
func (m *machine) Reboot(context.Context) error {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.asked++
	if m.fails > 0 {
		m.fails--
		return errors.New("out of order")
	}
	if m.broken || m.rebooting {
		return nil
	}
	m.rebooting = true
	agent := m.agent
	agent.dead = true
	go func() {
		agent.stop()
		if m.fast {
			m.comeBack()
			return
		}
		m.setReady(corev1.ConditionFalse)
		if !m.off {
			time.Sleep(m.w.boot)
			m.comeBack()
		}
	}()
	return nil
}

func (m *machine) comeBack() {
	m.w.mu.Lock()
	if !m.sameID {
		m.bootID++
	}
	m.rebooting = false
	m.w.mu.Unlock()
	m.setReady(corev1.ConditionTrue)
	m.startAgent()
}

// setReady writes the Ready condition of the machine's Node, as its kubelet does.
func (m *machine) setReady(status corev1.ConditionStatus) {
	m.w.edit(m.name, func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	})
}

// boots returns how often the machine was rebooted.
func (m *machine) boots() int {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return m.bootID
}

// addMachines adds that many machines, node-00, node-01 and so on, each with an agent.
func (w *world) addMachines(count int) {
	for i := range count {
		w.addMachine(fmt.Sprintf("node-%02d", i)).startAgent()
	}
}

// addMachine adds a machine without an agent.
func (w *world) addMachine(name string) *machine {
	m := &machine{w: w, name: name}
	w.mu.Lock()
	w.machines[name] = m
	w.mu.Unlock()
	w.create(nodeResource, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	return m
}

// names returns the names of all machines.
func (w *world) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.machines))
}

// request asks for reboots, as an administrator does.
func (w *world) request(names ...string) {
	for _, name := range names {
		w.edit(name, func(node *corev1.Node) {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, protocol.NeededAnnotation, "kernel")
		})
	}
}

// annotate sets an annotation, or removes it if the value is "-".
func (w *world) annotate(name, annotation, value string) {
	w.edit(name, func(node *corev1.Node) {
		if value == "-" {
			delete(node.Annotations, annotation)
		} else {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotation, value)
		}
	})
}

type object interface {
	runtime.Object
	metav1.Object
}

// create creates an object.
func (w *world) create(resource schema.GroupVersionResource, o object) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NoError(w.t, w.add(resource, o))
}

// add creates an object. w.mu is held.
func (w *world) add(resource schema.GroupVersionResource, o object) error {
	w.version++
	o.SetResourceVersion(strconv.Itoa(w.version))
	if err := w.objects.Create(resource, o, o.GetNamespace()); err != nil {
		return err
	}
	w.tell(resource, watch.Added, o)
	return nil
}

// update writes an object. w.mu is held.
func (w *world) update(resource schema.GroupVersionResource, o object) error {
	w.version++
	o.SetResourceVersion(strconv.Itoa(w.version))
	if err := w.objects.Update(resource, o, o.GetNamespace()); err != nil {
		return err
	}
	w.tell(resource, watch.Modified, o)
	return nil
}

// remove deletes an object. w.mu is held.
func (w *world) remove(resource schema.GroupVersionResource, o object) error {
	if err := w.objects.Delete(resource, o.GetNamespace(), o.GetName()); err != nil {
		return err
	}
	w.version++
	o.SetResourceVersion(strconv.Itoa(w.version))
	w.tell(resource, watch.Deleted, o)
	return nil
}

// tell sends an event to all watches. w.mu is held.
func (w *world) tell(resource schema.GroupVersionResource, what watch.EventType, o object) {
	entry := revision{w.version, resource, watch.Event{Type: what, Object: o.DeepCopyObject()}}
	w.history = append(w.history, entry)
	for one := range w.watchers {
		one.send(entry)
	}
}

// send puts a revision into the queue of a watch that selects it.
func (one *watcher) send(entry revision) {
	if entry.resource != one.resource || !selected(one.restrictions, entry.event.Object) {
		return
	}
	event := entry.event
	event.Object = event.Object.DeepCopyObject() // informers change what they get
	one.queue <- late{event, time.Now().Add(one.lag)}
}

// edit changes a Node as somebody does who is neither the controller nor an agent. A Node that does not exist stays so.
func (w *world) edit(name string, change func(*corev1.Node)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	node, err := w.get(name)
	if err != nil {
		return
	}
	change(node)
	assert.NoError(w.t, w.update(nodeResource, node))
}

// get returns a copy of a Node. w.mu is held.
func (w *world) get(name string) (*corev1.Node, error) {
	o, err := w.objects.Get(nodeResource, "", name)
	if err != nil {
		return nil, err
	}
	return o.(*corev1.Node).DeepCopy(), nil
}

// node returns a Node.
func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	node, err := w.get(name)
	require.NoError(w.t, err)
	return node
}

// deleteNode deletes a Node.
func (w *world) deleteNode(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	node, err := w.get(name)
	require.NoError(w.t, err)
	require.NoError(w.t, w.remove(nodeResource, node))
}

// addPod adds a Pod of a ReplicaSet to a Node.
func (w *world) addPod(name, node string) { w.create(podResource, nodetest.NewPod(name, node)) }

// removePod deletes a Pod at once, unless there is another one of that name by now.
func (w *world) removePod(name string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, err := w.objects.Get(podResource, "shop", name)
	if err != nil || o.(*corev1.Pod).UID != uid {
		return
	}
	assert.NoError(w.t, w.remove(podResource, o.(*corev1.Pod).DeepCopy()))
}

// pods returns the names of the Pods on a Node.
func (w *world) pods(node string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list, err := w.objects.List(podResource, corev1.SchemeGroupVersion.WithKind("Pod"), "")
	require.NoError(w.t, err)
	var names []string
	for _, pod := range list.(*corev1.PodList).Items {
		if pod.Spec.NodeName == node {
			names = append(names, pod.Name)
		}
	}
	return names
}

// pause sets or clears the switch in the ledger.
func (w *world) pause(paused bool) { w.setLedger(protocol.PausedKey, strconv.FormatBool(paused)) }

// setLedger sets a key of the ledger.
func (w *world) setLedger(key, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, err := w.objects.Get(configMapResource, namespace, w.options.Ledger)
	if apierrors.IsNotFound(err) {
		require.NoError(w.t, w.add(configMapResource, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.options.Ledger},
			Data:       map[string]string{key: value},
		}))
		return
	}
	require.NoError(w.t, err)
	configMap := o.(*corev1.ConfigMap).DeepCopy()
	if configMap.Data == nil {
		configMap.Data = map[string]string{}
	}
	configMap.Data[key] = value
	require.NoError(w.t, w.update(configMapResource, configMap))
}

// react answers every request but watches.
func (p *process) react(action clienttesting.Action) (bool, runtime.Object, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead || w.down {
		return true, nil, errDown
	}
	switch resource, verb := action.GetResource(), action.GetVerb(); {
	case resource.Resource == "events":
		if create, ok := action.(clienttesting.CreateAction); ok {
			event := create.GetObject().(*eventsv1.Event)
			if len(event.Note) > 1024 {
				return true, nil, apierrors.NewInvalid(eventsv1.SchemeGroupVersion.WithKind("Event").GroupKind(), event.Name, nil)
			}
			w.events = append(w.events, strings.Join([]string{event.Regarding.Name, event.Type, event.Reason, event.Note}, " "))
			return true, event, nil
		}
		return true, &eventsv1.Event{}, nil
	case action.GetSubresource() == "eviction":
		return true, nil, w.evict(action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction))
	case verb == "patch" && resource == nodeResource:
		node, err := w.patch(action.(clienttesting.PatchAction))
		if err == nil {
			w.wrote(p)
		}
		return true, node, err
	case verb == "update" && resource == configMapResource:
		configMap := action.(clienttesting.UpdateAction).GetObject().(*corev1.ConfigMap).DeepCopy()
		if w.onLedger != nil {
			w.onLedger()
		}
		current, err := w.objects.Get(resource, configMap.Namespace, configMap.Name)
		if err == nil && current.(*corev1.ConfigMap).ResourceVersion != configMap.ResourceVersion {
			err = apierrors.NewConflict(resource.GroupResource(), configMap.Name, errors.New("it has been modified"))
		}
		if err == nil {
			err = w.update(resource, configMap)
		}
		if err == nil {
			w.wrote(p)
		}
		return true, configMap, err
	case verb == "create" && resource == configMapResource:
		configMap := action.(clienttesting.CreateAction).GetObject().(*corev1.ConfigMap).DeepCopy()
		configMap.Namespace = action.GetNamespace()
		return true, configMap, w.add(resource, configMap)
	case verb == "list":
		return w.list(action.(clienttesting.ListAction))
	case verb == "get" && resource == nodeResource && w.onGetNode != nil:
		w.onGetNode()
	}
	return clienttesting.ObjectReaction(w.objects)(action)
}

// wrote counts a write, and checks the budget. w.mu is held.
func (w *world) wrote(p *process) {
	w.writes++
	if w.onWrite != nil {
		w.onWrite(p)
	}
}

// patch applies a merge patch to a Node, if its preconditions hold. w.mu is held.
func (w *world) patch(action clienttesting.PatchAction) (*corev1.Node, error) {
	node, err := w.get(action.GetName())
	if err != nil {
		return nil, err
	}
	var preconditions struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
		}
	}
	if err := json.Unmarshal(action.GetPatch(), &preconditions); err != nil {
		return nil, err
	}
	if want := preconditions.Metadata; want.UID != node.UID || want.ResourceVersion != node.ResourceVersion {
		return nil, apierrors.NewConflict(nodeResource.GroupResource(), node.Name, errors.New("it has been modified"))
	}
	before, err := json.Marshal(node)
	if err != nil {
		return nil, err
	}
	after, err := jsonpatch.MergePatch(before, action.GetPatch())
	if err != nil {
		return nil, err
	}
	changed := &corev1.Node{}
	if err := json.Unmarshal(after, changed); err != nil {
		return nil, err
	}
	if err := w.update(nodeResource, changed); err != nil {
		return nil, err
	}
	if !protocol.PhaseOf(node).HoldsSlot() && protocol.PhaseOf(changed).HoldsSlot() && w.most > 0 {
		assert.LessOrEqual(w.t, w.unavailable(), w.most, "Nodes are unavailable after the admission of %s", node.Name)
	}
	return changed, nil
}

// unavailable counts the Nodes that are not ready or hold a slot. w.mu is held.
func (w *world) unavailable() (count int) {
	list, err := w.objects.List(nodeResource, corev1.SchemeGroupVersion.WithKind("Node"), "")
	assert.NoError(w.t, err)
	for _, node := range list.(*corev1.NodeList).Items {
		if !protocol.IsReady(&node) || protocol.PhaseOf(&node).HoldsSlot() {
			count++
		}
	}
	return count
}

// evict asks a Pod to terminate. w.mu is held.
func (w *world) evict(e *policyv1.Eviction) error {
	if w.onEvict != nil {
		w.onEvict()
	}
	w.evictions = append(w.evictions, eviction{e.Name, time.Now()})
	if w.evictErr != nil {
		return w.evictErr
	}
	o, err := w.objects.Get(podResource, e.Namespace, e.Name)
	if err != nil {
		return err
	}
	if uid := e.DeleteOptions.Preconditions.UID; *uid != o.(*corev1.Pod).UID {
		return apierrors.NewConflict(podResource.GroupResource(), e.Name, errors.New("the UID in the precondition does not match"))
	}
	if w.protected[e.Name] {
		refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + e.Name + " needs 1 healthy pods and has 1 currently",
		})
		return refused
	}
	pod := o.(*corev1.Pod).DeepCopy()
	if pod.DeletionTimestamp != nil || len(e.DeleteOptions.DryRun) > 0 {
		return nil
	}
	pod.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(w.grace)))
	if err := w.update(podResource, pod); err != nil {
		return err
	}
	time.AfterFunc(w.grace, func() { w.removePod(pod.Name, pod.UID) })
	return nil
}

// list answers with field selectors and the resourceVersion. w.mu is held.
func (w *world) list(action clienttesting.ListAction) (bool, runtime.Object, error) {
	_, list, err := clienttesting.ObjectReaction(w.objects)(action)
	if err != nil {
		return true, nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return true, nil, err
	}
	restrictions := action.GetListRestrictions()
	items = slices.DeleteFunc(items, func(o runtime.Object) bool { return !selected(restrictions, o) })
	for i := range items {
		items[i] = items[i].DeepCopyObject() // informers change what they get
	}
	if err := meta.SetList(list, items); err != nil {
		return true, nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return true, nil, err
	}
	accessor.SetResourceVersion(strconv.Itoa(w.version))
	return true, list, nil
}

// selected reports whether a request selects the object. Errors of a watch always are.
func selected(restrictions clienttesting.ListRestrictions, o runtime.Object) bool {
	named, err := meta.Accessor(o)
	if err != nil {
		return true
	}
	set := fields.Set{metav1.ObjectNameField: named.GetName()}
	if pod, ok := o.(*corev1.Pod); ok {
		set["spec.nodeName"] = pod.Spec.NodeName
	}
	return (restrictions.Fields == nil || restrictions.Fields.Matches(set)) &&
		(restrictions.Labels == nil || restrictions.Labels.Matches(labels.Set(named.GetLabels())))
}

// watch delivers the events since a resourceVersion, as late as the process's watches are.
func (p *process) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead || w.down {
		return true, nil, errDown
	}
	request := action.(clienttesting.WatchActionImpl)
	one := &watcher{
		resource:     request.GetResource(),
		restrictions: clienttesting.ListRestrictions{Fields: request.WatchRestrictions.Fields, Labels: request.WatchRestrictions.Labels},
		queue:        make(chan late, 10_000),
	}
	if one.resource == nodeResource {
		one.lag = p.lag
	}
	from, err := strconv.Atoi(request.ListOptions.ResourceVersion)
	if err != nil {
		return true, nil, apierrors.NewBadRequest(err.Error())
	}
	for _, entry := range w.history {
		if entry.version > from {
			one.send(entry)
		}
	}
	w.watchers[one] = true
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.watchers, one)
		}()
		for {
			var next late
			select {
			case next = <-one.queue:
			case <-to.StopChan():
				return
			}
			if wait := time.Until(next.at); wait > 0 { // a timer that is due crashes the race detector now and then: https://go.dev/issue/78156
				select {
				case <-time.After(wait):
				case <-to.StopChan():
					return
				}
			}
			select {
			case events <- next.event:
			case <-to.StopChan():
				return
			}
		}
	}()
	return true, to, nil
}

// setDown cuts all processes off from the API server, or connects them again. Watches that are open go on.
func (w *world) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

// locked calls a function while nothing changes.
func (w *world) locked(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// written returns the number of writes of Nodes and ConfigMaps by all processes.
func (w *world) written() (writes int) {
	w.locked(func() { writes = w.writes })
	return writes
}

// evicted returns how many evictions were asked for.
func (w *world) evicted() (count int) {
	w.locked(func() { count = len(w.evictions) })
	return count
}

// timesAsked returns how often the machine was asked to reboot.
func (m *machine) timesAsked() (times int) {
	m.w.locked(func() { times = m.asked })
	return times
}

// protect sets whether a PodDisruptionBudget protects a Pod.
func (w *world) protect(pod string, protected bool) {
	w.locked(func() { w.protected[pod] = protected })
}

// advance lets time pass.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// advanceUntilIdle lets time pass until no Node is waiting for a reboot or being rebooted, but not more than limit.
func (w *world) advanceUntilIdle(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		advance(10 * time.Second)
		if !slices.ContainsFunc(w.names(), func(name string) bool { return protocol.PhaseOf(w.node(name)) != protocol.Idle }) {
			return
		}
	}
}

// requireDone requires that each of the machines was rebooted that often, and that nothing is left of it on its Node.
func (w *world) requireDone(times int, names ...string) {
	w.t.Helper()
	for _, name := range names {
		node := w.node(name)
		require.Equal(w.t, protocol.Idle, protocol.PhaseOf(node), name)
		require.False(w.t, node.Spec.Unschedulable, "%s is cordoned", name)
		require.Equal(w.t, times, w.machines[name].boots(), "reboots of %s", name)
		left := slices.Sorted(maps.Keys(node.Annotations))
		if times > 0 {
			require.Equal(w.t, []string{protocol.LastAttemptAnnotation, protocol.RebootedAnnotation}, left, name)
		}
	}
}

// told returns the Events about a Node that have that reason.
func (w *world) told(node, reason string) (events []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, event := range w.events {
		if fields := strings.SplitN(event, " ", 4); fields[0] == node && fields[2] == reason {
			events = append(events, fields[3])
		}
	}
	return events
}

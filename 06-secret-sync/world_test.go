package secretsync

import (
	"context"
	"encoding/base64"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// secretValue is in all data of the tests, and must be nowhere else.
const secretValue = "hunter2"

var errDown = errors.New("connection refused")

// object is a Secret or a Namespace.
type object interface {
	runtime.Object
	metav1.Object
}

// world is an API server with Secrets and namespaces, in virtual time. The fake clientsets alone know no resourceVersions,
// preconditions, field selectors or immutable fields, share nothing with each other, and their watches are never late; the
// world adds that. It checks with each write that no Secret of a user is touched, and that no copy is ever empty.
type world struct {
	t       *testing.T
	options Options

	mu        sync.Mutex
	version   int // the last resourceVersion
	objects   map[schema.GroupVersionResource]map[cache.ObjectName]object
	users     map[types.UID]bool // UIDs of the Secrets that users have created
	fields    *managedfields.FieldManager
	history   []revision
	watchers  map[*watcher]bool
	processes []*process
	requests  []string             // "verb namespace/name" of the writes of Secrets, with the code of those that failed
	onWrite   func(*process)       // called after each write that succeeded; may be nil
	onRequest func(string)         // called before each write, with its verb and key, while the world is locked; may be nil
	answer    func(string) error   // what a webhook or a proxy answers to a write, by its verb and key; nil, or a nil error, lets it through
	mutate    func(*corev1.Secret) // what a mutating webhook does to each Secret that a process writes; nil for nothing
	forbidden map[string]bool      // namespaces in which the processes may not write
	behind    map[string]bool      // namespaces that have been created again, and the next create is answered as if they had not
	full      map[string]bool      // namespaces whose ResourceQuota allows no more Secrets
	events    []string             // "Name Type Reason Note"
	reads     int                  // of single Secrets
	compacted int                  // resourceVersion from which on changes can be watched
	down      bool                 // no process reaches the API server
	deaf      string               // no event reaches the watches whose selector has this text; "" for none
	unlisted  string               // lists whose field selector has this text fail; "" for none
	lost      int                  // how many answers to writes are lost next
}

// revision is a change of an object. old is nil if it was created, and now if it was deleted.
type revision struct {
	version  int
	resource schema.GroupVersionResource
	old, now object
}

// watcher is a watch that a process has open.
type watcher struct {
	resource  schema.GroupVersionResource
	namespace string
	restrict  clienttesting.ListRestrictions
	metadata  bool
	lag       time.Duration
	queue     chan late
	cut       chan struct{} // closed when the API server ends the watch
}

// late is an event, and when it is delivered.
type late struct {
	event watch.Event
	at    time.Time
}

// process is a controller.
type process struct {
	*fake.Clientset
	metadata *metadatafake.FakeMetadataClient
	w        *world
	lag      time.Duration // of its watches
	log      ktesting.Buffer
	cancel   context.CancelFunc
	done     chan struct{}
	dead     bool // nothing of it reaches the API server; guarded by w.mu
	c        *Controller
}

// inWorld runs a test in virtual time, and stops all processes at its end.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		namespaces, err := ParseNamespaces(DefaultNamespaces)
		require.NoError(t, err)
		kind := corev1.SchemeGroupVersion.WithKind("Secret")
		manager, err := managedfields.NewDefaultFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), scheme.Scheme, scheme.Scheme, scheme.Scheme,
			kind, kind.GroupVersion(), "", nil)
		require.NoError(t, err)
		w := &world{
			t: t,
			options: Options{
				Scope:   Scope{SourceNamespace: "secret-sync", Namespaces: namespaces},
				Workers: 4, Backoff: 100 * time.Millisecond, MaxBackoff: time.Minute, Grace: 5 * time.Second,
			},
			objects: map[schema.GroupVersionResource]map[cache.ObjectName]object{secretsResource: {}, namespacesResource: {}},
			users:   map[types.UID]bool{}, fields: manager, watchers: map[*watcher]bool{}, forbidden: map[string]bool{}, behind: map[string]bool{}, full: map[string]bool{}, version: 1,
		}
		w.addNamespace("secret-sync", false)
		defer func() {
			w.mu.Lock()
			processes := slices.Clone(w.processes)
			w.mu.Unlock()
			for _, p := range processes {
				p.stop()
				requireNoSecret(t, p.log.String(), "the log")
				requireNoSecret(t, metricsOf(t, p.c), "the metrics")
			}
			requireNoSecret(t, strings.Join(w.events, "\n"), "an Event")
		}()
		test(t, w)
	})
}

// requireNoSecret requires that a text has the value of a Secret in none of the ways in which Go and Kubernetes print it.
func requireNoSecret(t *testing.T, text, where string) {
	t.Helper()
	for _, format := range []string{"%s", "%x", "%v", "%#v"} {
		printed := strings.Trim(strings.TrimPrefix(fmt.Sprintf(format, []byte(secretValue)), "[]byte"), "[]{}")
		require.NotContains(t, text, printed, where)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(secretValue))
	require.NotContains(t, text, encoded[:len(secretValue)/3*4], where) // what follows may change the rest
}

// startController starts a controller whose watches are late. Its log has all verbosities.
func (w *world) startController(lag time.Duration) *process {
	logger := ktesting.NewLogger(w.t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(10)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	p := &process{
		Clientset: &fake.Clientset{}, metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()),
		w: w, lag: lag, cancel: cancel, done: make(chan struct{}), log: logger.GetSink().(ktesting.Underlier).GetBuffer(),
	}
	p.AddReactor("*", "*", p.react)
	p.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) { return p.watch(action, false) })
	p.metadata.PrependReactor("list", "*", p.listMetadata)
	p.metadata.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) { return p.watch(action, true) })
	c, err := New(ctx, p, p.metadata, w.options)
	require.NoError(w.t, err)
	p.c = c
	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()
	go func() {
		defer close(p.done)
		assert.NoError(w.t, c.Run(ctx))
	}()
	return p
}

// stop ends a process as SIGTERM does.
func (p *process) stop() {
	p.cancel()
	<-p.done
}

// set creates or updates an object, or deletes it if now is nil. w.mu is held.
func (w *world) set(resource schema.GroupVersionResource, key cache.ObjectName, now object) {
	old := w.objects[resource][key]
	w.version++
	if secret, ok := old.(*corev1.Secret); ok && now == nil && len(secret.Finalizers) > 0 { // it stays until they are removed
		secret = secret.DeepCopy()
		if secret.DeletionTimestamp == nil {
			secret.DeletionTimestamp = new(metav1.Now())
		}
		now = secret
	}
	if secret, ok := now.(*corev1.Secret); ok && secret.DeletionTimestamp != nil && len(secret.Finalizers) == 0 {
		now = nil
	}
	if now == nil {
		delete(w.objects[resource], key)
	} else {
		now.SetResourceVersion(strconv.Itoa(w.version))
		w.objects[resource][key] = now
	}
	if secret, ok := now.(*corev1.Secret); ok && !w.users[secret.UID] {
		assert.NotEmpty(w.t, secret.Data, "copy %s is empty", key)
	}
	entry := revision{w.version, resource, old, now}
	w.history = append(w.history, entry)
	for one := range w.watchers {
		if w.deaf == "" || one.restrict.Labels == nil || !strings.Contains(one.restrict.Labels.String(), w.deaf) {
			one.send(entry)
		}
	}
}

// send puts a change into the queue of a watch, as the API server does for a selector: an object that is selected no longer
// is deleted for this watch.
func (one *watcher) send(entry revision) {
	if entry.resource != one.resource {
		return
	}
	selected := func(o object) bool {
		return o != nil && (one.namespace == "" || o.GetNamespace() == one.namespace) && selects(one.restrict, o)
	}
	event, what := watch.Event{}, entry.now
	switch before, after := selected(entry.old), selected(entry.now); {
	case before && after:
		event.Type = watch.Modified
	case after:
		event.Type = watch.Added
	case before:
		event.Type, what = watch.Deleted, entry.old
	default:
		return
	}
	event.Object = what.DeepCopyObject()
	event.Object.(object).SetResourceVersion(strconv.Itoa(entry.version))
	if one.metadata {
		event.Object = metadataOf(event.Object.(object))
	}
	one.queue <- late{event, time.Now().Add(one.lag)}
}

func selects(restrict clienttesting.ListRestrictions, o object) bool {
	return (restrict.Labels == nil || restrict.Labels.Matches(labels.Set(o.GetLabels()))) &&
		(restrict.Fields == nil || restrict.Fields.Matches(fields.Set{metav1.ObjectNameField: o.GetName(), "metadata.namespace": o.GetNamespace()}))
}

// metadataOf returns the metadata of an object.
func metadataOf(o object) *metav1.PartialObjectMetadata {
	result := &metav1.PartialObjectMetadata{}
	switch o := o.DeepCopyObject().(type) {
	case *corev1.Secret:
		result.ObjectMeta = o.ObjectMeta
	case *corev1.Namespace:
		result.ObjectMeta = o.ObjectMeta
	}
	return result
}

// selectedBy returns what a list request selects. w.mu is held.
func (w *world) selectedBy(action clienttesting.ListAction) (selected []object) {
	for _, o := range w.objects[action.GetResource()] {
		if (action.GetNamespace() == "" || o.GetNamespace() == action.GetNamespace()) && selects(action.GetListRestrictions(), o) {
			selected = append(selected, o.DeepCopyObject().(object))
		}
	}
	return selected
}

// watch delivers the changes since a resourceVersion.
func (p *process) watch(action clienttesting.Action, metadata bool) (bool, watch.Interface, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead || w.down {
		return true, nil, errDown
	}
	request := action.(clienttesting.WatchActionImpl)
	one := &watcher{
		resource: request.GetResource(), namespace: request.GetNamespace(), metadata: metadata, lag: p.lag,
		restrict: clienttesting.ListRestrictions{Fields: request.WatchRestrictions.Fields, Labels: request.WatchRestrictions.Labels},
		queue:    make(chan late, 100_000),
		cut:      make(chan struct{}),
	}
	from, err := strconv.Atoi(request.ListOptions.ResourceVersion)
	if err != nil {
		return true, nil, apierrors.NewBadRequest(err.Error())
	}
	if from < w.compacted {
		return true, nil, apierrors.NewResourceExpired("too old resource version")
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
		defer w.locked(func() { delete(w.watchers, one) })
		for {
			var next late
			select {
			case next = <-one.queue:
			case <-to.StopChan():
				return
			case <-one.cut:
				return
			}
			if wait := time.Until(next.at); wait > 0 { // a timer that is due crashes the race detector now and then: https://go.dev/issue/78156
				select {
				case <-time.After(wait):
				case <-to.StopChan():
					return
				case <-one.cut:
					return
				}
			}
			select {
			case events <- next.event:
			case <-to.StopChan():
				return
			case <-one.cut:
				return
			}
		}
	}()
	return true, to, nil
}

// listMetadata answers a list of metadata.
func (p *process) listMetadata(action clienttesting.Action) (bool, runtime.Object, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead || w.down {
		return true, nil, errDown
	}
	if selector := action.(clienttesting.ListAction).GetListRestrictions().Fields; w.unlisted != "" && strings.Contains(selector.String(), w.unlisted) {
		return true, nil, errDown
	}
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(w.version)}}
	for _, o := range w.selectedBy(action.(clienttesting.ListAction)) {
		list.Items = append(list.Items, runtime.RawExtension{Object: metadataOf(o)})
	}
	return true, list, nil
}

// react answers every other request but watches.
func (p *process) react(action clienttesting.Action) (bool, runtime.Object, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead || w.down {
		return true, nil, errDown
	}
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		if event, ok := action.Object.(*eventsv1.Event); ok {
			if len(event.Note) > 1024 {
				return true, nil, apierrors.NewInvalid(eventsv1.SchemeGroupVersion.WithKind("Event").GroupKind(), event.Name, nil)
			}
			w.events = append(w.events, strings.Join([]string{event.Regarding.Name, event.Type, event.Reason, event.Note}, " "))
			return true, event, nil
		}
		secret := action.Object.(*corev1.Secret).DeepCopy()
		return p.write("create", cache.MetaObjectToName(secret), func(current *corev1.Secret) (*corev1.Secret, error) {
			if current != nil {
				return nil, apierrors.NewAlreadyExists(secretsResource.GroupResource(), secret.Name)
			}
			secret.UID, secret.CreationTimestamp = types.UID(fmt.Sprint("uid-", w.version)), metav1.Now().Rfc3339Copy()
			return secret, w.admit(&corev1.Secret{}, secret, action.CreateOptions.FieldManager)
		})
	case clienttesting.UpdateActionImpl:
		secret := action.Object.(*corev1.Secret).DeepCopy()
		return p.write("update", cache.MetaObjectToName(secret), func(current *corev1.Secret) (*corev1.Secret, error) {
			switch {
			case current == nil:
				return nil, apierrors.NewNotFound(secretsResource.GroupResource(), secret.Name)
			case secret.UID != "" && secret.UID != current.UID, secret.ResourceVersion != "" && secret.ResourceVersion != current.ResourceVersion:
				return nil, apierrors.NewConflict(secretsResource.GroupResource(), secret.Name, errors.New("it has been modified"))
			}
			assert.False(w.t, w.users[current.UID], "the Secret %s of a user is overwritten", cache.MetaObjectToName(secret))
			secret.UID, secret.CreationTimestamp = current.UID, current.CreationTimestamp
			return secret, w.admit(current, secret, action.UpdateOptions.FieldManager)
		})
	case clienttesting.DeleteActionImpl:
		return p.write("delete", cache.NewObjectName(action.Namespace, action.Name), func(current *corev1.Secret) (*corev1.Secret, error) {
			preconditions := action.DeleteOptions.Preconditions
			switch {
			case current == nil:
				return nil, apierrors.NewNotFound(secretsResource.GroupResource(), action.Name)
			case preconditions != nil && (*preconditions.UID != current.UID || *preconditions.ResourceVersion != current.ResourceVersion):
				return nil, apierrors.NewConflict(secretsResource.GroupResource(), action.Name, errors.New("a precondition failed"))
			}
			assert.False(w.t, w.users[current.UID], "the Secret %s/%s of a user is deleted", action.Namespace, action.Name)
			return nil, nil
		})
	case clienttesting.ListActionImpl:
		list := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(w.version)}}
		for _, o := range w.selectedBy(action) {
			list.Items = append(list.Items, *o.(*corev1.Secret))
		}
		return true, list, nil
	case clienttesting.GetActionImpl:
		w.reads++
	case clienttesting.PatchActionImpl: // of an Event
		return true, &eventsv1.Event{}, nil
	}
	return true, nil, fmt.Errorf("the world cannot answer %s %s", action.GetVerb(), action.GetResource())
}

// write carries out a write of a process. change returns what becomes of the current Secret, nil if it is deleted. w.mu is
// held.
func (p *process) write(verb string, key cache.ObjectName, change func(current *corev1.Secret) (*corev1.Secret, error)) (bool, runtime.Object, error) {
	w := p.w
	request := verb + " " + key.String()
	if w.onRequest != nil {
		w.onRequest(request)
	}
	namespace := w.objects[namespacesResource][cache.NewObjectName("", key.Namespace)]
	current, _ := w.objects[secretsResource][key].(*corev1.Secret)
	var now *corev1.Secret
	var err error
	if w.answer != nil {
		err = w.answer(request)
	}
	switch {
	case err != nil:
	case w.forbidden[key.Namespace]:
		err = apierrors.NewForbidden(secretsResource.GroupResource(), key.Name, fmt.Errorf("User cannot %s %s", verb, secretValue))
	case verb == "create" && w.full[key.Namespace] && current == nil:
		err = apierrors.NewForbidden(secretsResource.GroupResource(), key.Name, errors.New("exceeded quota: secrets, requested: secrets=1, used: secrets=1, limited: secrets=1"))
	case verb == "create" && w.behind[key.Namespace]:
		delete(w.behind, key.Namespace)
		err = isTerminating(key)
	case namespace == nil:
		err = apierrors.NewNotFound(namespacesResource.GroupResource(), key.Namespace)
	case verb == "create" && namespace.GetDeletionTimestamp() != nil:
		err = isTerminating(key)
	default:
		now, err = change(current)
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		request = fmt.Sprint(request, " ", status.Status().Code)
	}
	w.requests = append(w.requests, request)
	if err != nil {
		return true, nil, err
	}
	if now == nil {
		w.set(secretsResource, key, nil)
	} else if current == nil || !sameSecret(current, now) {
		w.set(secretsResource, key, now)
	}
	if w.onWrite != nil {
		w.onWrite(p)
	}
	if w.lost > 0 {
		w.lost--
		return true, nil, errors.New("connection reset")
	}
	if p.dead {
		return true, nil, errDown
	}
	if now == nil {
		return true, nil, nil
	}
	return true, now.DeepCopy(), nil
}

// isTerminating is the answer to a request to create an object in a namespace that is being deleted.
func isTerminating(key cache.ObjectName) error {
	forbidden := apierrors.NewForbidden(secretsResource.GroupResource(), key.Name, errors.New("the namespace is being terminated"))
	forbidden.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return forbidden
}

// sameSecret reports whether an update changes nothing: then the API server keeps the resourceVersion.
func sameSecret(a, b *corev1.Secret) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.ResourceVersion, b.ResourceVersion = "", ""
	for _, secret := range []*corev1.Secret{a, b} {
		for i := range secret.ManagedFields {
			secret.ManagedFields[i].Time = nil
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

// admit does to a Secret that a process writes what the API server does before it stores it. managedFields do not have what a
// webhook changes.
func (w *world) admit(old, now *corev1.Secret, manager string) error {
	if err := w.record(old, now, manager); err != nil {
		return err
	}
	if w.mutate != nil {
		w.mutate(now)
	}
	var problems field.ErrorList
	if old.Type != "" && now.Type != old.Type {
		problems = append(problems, field.Invalid(field.NewPath("type"), secretValue, "field is immutable"))
	}
	if old.Immutable != nil && *old.Immutable {
		if now.Immutable == nil || !*now.Immutable {
			problems = append(problems, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
		}
		if !equality.Semantic.DeepEqual(old.Data, now.Data) {
			problems = append(problems, field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set "+secretValue))
		}
	}
	if problems != nil {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), now.Name, problems)
	}
	return nil
}

// record updates the managedFields of a Secret.
func (w *world) record(old, now *corev1.Secret, manager string) error {
	kind := corev1.SchemeGroupVersion.WithKind("Secret")
	old = old.DeepCopy()
	old.SetGroupVersionKind(kind)
	now.SetGroupVersionKind(kind)
	if now.Type == "" {
		now.Type = corev1.SecretTypeOpaque
	}
	result, err := w.fields.Update(old, now, manager)
	if err != nil {
		return err
	}
	now.ManagedFields = result.(*corev1.Secret).ManagedFields
	now.TypeMeta = metav1.TypeMeta{}
	return nil
}

// locked calls a function while nothing changes.
func (w *world) locked(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// addNamespace creates a namespace.
func (w *world) addNamespace(name string, wanted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprint("namespace-", w.version)), Labels: map[string]string{corev1.LabelMetadataName: name},
	}}
	if wanted {
		namespace.Labels[CopiesLabel] = "true"
	}
	w.set(namespacesResource, cache.NewObjectName("", name), namespace)
}

// addNamespaces creates that many namespaces that want copies, ns-00, ns-01 and so on, and returns their names.
func (w *world) addNamespaces(count int) (names []string) {
	for i := range count {
		names = append(names, fmt.Sprintf("ns-%02d", i))
		w.addNamespace(names[i], true)
	}
	return names
}

// editNamespace changes a namespace.
func (w *world) editNamespace(name string, change func(*corev1.Namespace)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := cache.NewObjectName("", name)
	namespace := w.objects[namespacesResource][key].DeepCopyObject().(*corev1.Namespace)
	change(namespace)
	w.set(namespacesResource, key, namespace)
}

// terminate begins to delete a namespace, and removes its Secrets. It ends with remove.
func (w *world) terminate(name string) {
	w.editNamespace(name, func(namespace *corev1.Namespace) { namespace.DeletionTimestamp = new(metav1.Now()) })
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.objects[secretsResource] {
		if key.Namespace == name {
			w.set(secretsResource, key, nil)
		}
	}
}

func (w *world) removeNamespace(name string) {
	w.locked(func() { w.set(namespacesResource, cache.NewObjectName("", name), nil) })
}

// secretOption is a property of a Secret.
type secretOption func(*corev1.Secret)

func asSource(secret *corev1.Secret) {
	metav1.SetMetaDataLabel(&secret.ObjectMeta, SharedLabel, "true")
}
func immutable(secret *corev1.Secret) { secret.Immutable = new(true) }

func annotated(annotation, value string) secretOption {
	return func(secret *corev1.Secret) { metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotation, value) }
}

func typed(secretType corev1.SecretType) secretOption {
	return func(secret *corev1.Secret) { secret.Type = secretType }
}

func with(key, value string) secretOption {
	return func(secret *corev1.Secret) {
		secret.Data = maps.Clone(secret.Data)
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = []byte(secretValue + value)
	}
}

// create creates a Secret of a user.
func (w *world) create(namespace, name string, options ...secretOption) {
	w.mu.Lock()
	defer w.mu.Unlock()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint("user-", w.version)), CreationTimestamp: metav1.Now().Rfc3339Copy(),
	}}
	with("password", "")(secret)
	for _, option := range options {
		option(secret)
	}
	w.users[secret.UID] = true
	require.NoError(w.t, w.record(&corev1.Secret{}, secret, "user"))
	w.set(secretsResource, cache.NewObjectName(namespace, name), secret)
}

// share creates a source.
func (w *world) share(name string, options ...secretOption) {
	w.create("secret-sync", name, append(options, asSource)...)
}

// edit changes a Secret as a user does.
func (w *world) edit(namespace, name string, options ...secretOption) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	key := cache.NewObjectName(namespace, name)
	current, ok := w.objects[secretsResource][key].(*corev1.Secret)
	require.True(w.t, ok, "Secret %s", key)
	secret := current.DeepCopy()
	for _, option := range options {
		option(secret)
	}
	require.NoError(w.t, w.record(current, secret, "user"))
	w.set(secretsResource, key, secret)
}

// remove deletes a Secret as a user does.
func (w *world) remove(namespace, name string) {
	w.locked(func() { w.set(secretsResource, cache.NewObjectName(namespace, name), nil) })
}

// get returns a Secret; nil if there is none.
func (w *world) get(namespace, name string) *corev1.Secret {
	w.mu.Lock()
	defer w.mu.Unlock()
	secret, _ := w.objects[secretsResource][cache.NewObjectName(namespace, name)].(*corev1.Secret)
	return secret
}

// written returns the requests to write that were made since the last call, sorted.
func (w *world) written() (requests []string) {
	w.locked(func() { requests, w.requests = slices.Sorted(slices.Values(w.requests)), nil })
	return requests
}

// told returns the Events, and forgets them.
func (w *world) told() (events []string) {
	w.locked(func() { events, w.events = slices.Sorted(slices.Values(w.events)), nil })
	return events
}

// setDown cuts all processes off from the API server, or connects them again.
func (w *world) setDown(down bool) { w.locked(func() { w.down = down }) }

// missed makes a change that no watch delivers: all watches end first, and the API server has forgotten the change when they
// start again, so that the processes have to list.
func (w *world) missed(change func()) {
	w.locked(func() {
		for one := range w.watchers {
			close(one.cut)
			delete(w.watchers, one)
		}
		w.down = true
	})
	change()
	w.locked(func() { w.compacted, w.down = w.version, false })
}

// advance lets time pass.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// requireCopies requires that these namespaces have a copy of a source, and no others.
func (w *world) requireCopies(source string, namespaces ...string) {
	w.t.Helper()
	from := w.get("secret-sync", source)
	w.mu.Lock()
	defer w.mu.Unlock()
	var have []string
	for key, o := range w.objects[secretsResource] {
		secret := o.(*corev1.Secret)
		if secret.Labels[CopyLabel] == "secret-sync" && secret.Annotations[SourceAnnotation] == source && secret.Annotations[CopiedToAnnotation] == key.String() {
			have = append(have, key.Namespace)
			if from != nil {
				require.Equal(w.t, from.Data, secret.Data, key)
				require.Equal(w.t, from.Type, secret.Type, key)
				require.Equal(w.t, string(from.UID), secret.Annotations[SourceUIDAnnotation], key)
			}
		}
	}
	slices.Sort(have)
	require.ElementsMatch(w.t, namespaces, have)
}

func labelled(label, value string) secretOption {
	return func(secret *corev1.Secret) { metav1.SetMetaDataLabel(&secret.ObjectMeta, label, value) }
}

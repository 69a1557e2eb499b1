// Package oracle judges a controller from the outside: by the states that the cluster went through, and by the requests
// that the controller sent.
//
//   - [Watch] records every state of some resources in a namespace, in the order in which etcd committed them.
//   - [Rules] are conditions on such states, in CEL.
//   - [Normalize] and [Compare] tell in what two states differ, apart from what differs between any two runs.
//   - [EffectsOf] counts what a controller's writes came to, and [Expected] says what is usual.
package oracle

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// Object is a decoded JSON object. Callers must not modify one that they get from this package.
type Object = map[string]any

// Change is a step from one state to the next.
type Change struct {
	Type     watch.EventType // Added, Modified or Deleted
	Resource string          // plural, such as "pods"
	Time     time.Time       // when the watch delivered it
	name     string          // see Name
	Old, New Object          // Old is nil for Added. New of Deleted is the last state
	// Relisted says that the change was found after a gap, by comparing a list with what was known before. It may stand
	// for several changes, and only the state after all changes of that list existed.
	Relisted bool

	version uint64 // the resourceVersion of the list if it was relisted
}

// String says what changed: "DELETED pods frontend-x". For a change that was relisted, it says which state it led to.
func (c Change) String() string {
	if c.Relisted {
		return "the first known state after the API server was restarted"
	}
	return fmt.Sprintf("%s %s %s", c.Type, c.Resource, c.Name())
}

// Name names the object, see [Scope].
func (c Change) Name() string { return cmp.Or(c.name, field(c.New, "metadata", "name")) }

// field returns a string in an object, or "".
func field(o Object, path ...string) string {
	text, _, _ := unstructured.NestedString(o, path...)
	return text
}

// State holds the objects that exist at one time, by resource and then by name, see [Scope].
type State map[string]map[string]Object

// clone copies the state but shares its objects.
func (s State) clone() State {
	c := State{}
	for resource, objects := range s {
		c[resource] = maps.Clone(objects)
	}
	return c
}

// apply changes the state.
func (s State) apply(c Change) {
	if c.Type == watch.Deleted {
		delete(s[c.Resource], c.Name())
	} else {
		s[c.Resource][c.Name()] = c.New
	}
}

// List returns the objects of a resource, sorted by name.
func (s State) List(resource string) []Object {
	var objects []Object
	for _, name := range slices.Sorted(maps.Keys(s[resource])) {
		objects = append(objects, s[resource][name])
	}
	return objects
}

// States records the states that some resources of a namespace, or of a cluster, go through.
type States struct {
	scope   Scope
	watches sync.WaitGroup
	cancel  context.CancelFunc

	mu      sync.Mutex
	start   State
	now     State
	seen    map[string]uint64 // the latest resourceVersion that was delivered, by resource
	changes []Change
	changed chan struct{} // closed and replaced at each change
	failed  error
	failing map[string]time.Time // since when the watch of a resource fails; none while it works
	gaps    []gap
	mark    int // index into changes from which Counts counts
}

// gap is a range of resourceVersions between which the objects of one resource are not known.
type gap struct{ after, before uint64 }

// includes reports whether the state at a resourceVersion is not known.
func (g gap) includes(version uint64) bool { return g.after < version && version < g.before }

// rootCA is the ConfigMap that the controller manager adds to every namespace, at some time.
const rootCA = "kube-root-ca.crt"

// Watch starts to record, from the present state on, until Stop is called. A watch that breaks is resumed where it was; one
// that cannot be resumed is an error of [States.Err].
func Watch(ctx context.Context, client dynamic.Interface, scope Scope, resources []schema.GroupVersionResource) (*States, error) {
	s := &States{scope: scope, start: State{}, now: State{}, seen: map[string]uint64{}, changed: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(ctx)
	for _, r := range resources {
		var objects dynamic.ResourceInterface = client.Resource(r) // of all namespaces, or without one
		if !scope.Cluster {
			objects = client.Resource(r).Namespace(scope.Namespace)
		}
		if err := s.watch(ctx, objects, r.Resource); err != nil {
			s.Stop()
			return nil, fmt.Errorf("watch %s: %w", r.Resource, err)
		}
	}
	return s, nil
}

func (s *States) watch(ctx context.Context, client dynamic.ResourceInterface, resource string) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.start[resource] = map[string]Object{}
	for _, item := range list.Items {
		if s.scope.owns(resource, item.Object) {
			s.start[resource][s.scope.Key(item.Object)] = item.Object
		}
	}
	s.now[resource] = maps.Clone(s.start[resource])
	s.seen[resource], _ = strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	s.mu.Unlock()
	s.watches.Go(func() {
		from := list.GetResourceVersion()
		for ctx.Err() == nil {
			if from, err = s.follow(ctx, client, resource, from); err == nil {
				continue
			}
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				from, err = s.catchUp(ctx, client, resource, from)
			}
			if err != nil {
				s.retry(ctx, resource, err)
			}
		}
	})
	return nil
}

// follow watches from a resourceVersion on until the watch ends. It returns the resourceVersion that it reached.
func (s *States) follow(ctx context.Context, client dynamic.ResourceInterface, resource, from string) (string, error) {
	watcher, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
	if err != nil {
		return from, err
	}
	defer watcher.Stop()
	s.recover(resource)
	for event := range watcher.ResultChan() {
		object, is := event.Object.(*unstructured.Unstructured)
		if event.Type == watch.Error || !is {
			return from, apierrors.FromObject(event.Object)
		}
		s.recover(resource)
		s.add(event.Type, resource, object)
		from = object.GetResourceVersion()
	}
	return from, nil
}

// catchUp lists what exists now, when the API server no longer knows the changes since a resourceVersion. The states in
// between are lost.
func (s *States) catchUp(ctx context.Context, client dynamic.ResourceInterface, resource, since string) (from string, err error) {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return since, err
	}
	after, _ := strconv.ParseUint(since, 10, 64) // both come from the API server
	version, _ := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	hasChanged := s.relist(resource, list.Items, version)
	if !hasChanged {
		after = version // so other resources' changes since then led to states that are known
	}
	s.gaps = append(s.gaps, gap{after, version})
	s.seen[resource] = max(s.seen[resource], version)
	s.notify()
	return list.GetResourceVersion(), nil
}

// relist records in what a list differs from the latest state, all at the resourceVersion of the list. It reports whether
// it does. An object that has another UID was deleted and created. It is called with s.mu.
func (s *States) relist(resource string, items []unstructured.Unstructured, version uint64) (hasChanged bool) {
	gone := maps.Clone(s.now[resource])
	record := func(kind watch.EventType, object Object) {
		hasChanged = true
		s.record(Change{Type: kind, Resource: resource, New: object, Relisted: true, version: version})
	}
	for _, item := range items {
		key := s.scope.Key(item.Object)
		old := gone[key]
		delete(gone, key)
		switch {
		case !s.scope.owns(resource, item.Object):
		case old == nil:
			record(watch.Added, item.Object)
		case UID(old) != item.GetUID():
			record(watch.Deleted, old)
			record(watch.Added, item.Object)
		case field(old, "metadata", "resourceVersion") != item.GetResourceVersion():
			record(watch.Modified, item.Object)
		}
	}
	for _, key := range sorted(gone) {
		record(watch.Deleted, gone[key])
	}
	return hasChanged
}

// patience is how long a failing watch is retried.
const patience = time.Minute

// retry waits before the next attempt. After patience, the error becomes that of [States.Err].
func (s *States) retry(ctx context.Context, resource string, err error) {
	s.mu.Lock()
	if s.failing == nil {
		s.failing = map[string]time.Time{}
	}
	if s.failing[resource].IsZero() {
		s.failing[resource] = time.Now()
	}
	if s.failed == nil && time.Since(s.failing[resource]) > patience {
		s.failed = fmt.Errorf("the watch of %s failed: %w", resource, err)
		s.notify()
	}
	s.mu.Unlock()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
}

// recover notes that a watch works.
func (s *States) recover(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failing, resource)
}

// Gaps returns how often states were lost because a restarted API server no longer knew them.
func (s *States) Gaps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.gaps)
}

func (s *States) add(kind watch.EventType, resource string, object *unstructured.Unstructured) {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil || kind == watch.Bookmark {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[resource] = max(s.seen[resource], version)
	if s.scope.owns(resource, object.Object) {
		s.record(Change{Type: kind, Resource: resource, New: object.Object, version: version})
		s.notify()
	}
}

// record completes a change to the latest state, and adds it. It is called with s.mu.
func (s *States) record(c Change) {
	c.Time, c.name = time.Now(), s.scope.Key(c.New)
	c.Old = s.now[c.Resource][c.name]
	s.now.apply(c)
	s.changes = append(s.changes, c)
}

func (s *States) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Now returns the latest state, and a channel that is closed at the next change.
func (s *States) Now() (State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.clone(), s.changed
}

// Seen reports whether the latest state includes a write whose answer had this resourceVersion. It is true for a resource
// that is not watched.
func (s *States) Seen(resource, resourceVersion string) bool {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, watched := s.seen[resource]
	return err != nil || !watched || seen >= version
}

// Err returns why states are missing, or nil.
func (s *States) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Stop ends the recording. What was recorded stays.
func (s *States) Stop() {
	s.cancel()
	s.watches.Wait()
}

// Each calls visit with the state after every change, in the order of resourceVersions, until it returns an error. The
// state is valid during the call only. States in a gap are left out, of whatever resource: the first one after it comes
// with a change that is Relisted.
func (s *States) Each(visit func(State, Change) error) error {
	s.mu.Lock()
	state, changes, gaps := s.start.clone(), slices.Clone(s.changes), slices.Clone(s.gaps)
	s.mu.Unlock()
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Or(cmp.Compare(a.version, b.version), compareRelisted(a, b)) })
	for i, c := range changes {
		state.apply(c)
		isPart := c.Relisted && i+1 < len(changes) && changes[i+1].version == c.version
		if isPart || slices.ContainsFunc(gaps, func(g gap) bool { return g.includes(c.version) }) {
			continue
		}
		if err := visit(state, c); err != nil {
			return err
		}
	}
	return nil
}

// compareRelisted orders changes with the same resourceVersion. A list shows what the change with its resourceVersion led
// to, so that change comes after what was relisted.
func compareRelisted(a, b Change) int {
	switch {
	case a.Relisted == b.Relisted:
		return 0
	case a.Relisted:
		return -1
	}
	return 1
}

// Existed reports whether an object with this name, see [Scope], existed at any time, as far as is known.
func (s *States) Existed(resource, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, existed := s.start[resource][name]
	return existed || slices.ContainsFunc(s.changes, func(c Change) bool { return c.Resource == resource && c.Name() == name })
}

// Mark sets the point from which Counts counts.
func (s *States) Mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = len(s.changes)
}

// Counts returns how often objects were created and deleted since Mark, by "added pods frontend-*".
func (s *States) Counts() map[string]int {
	class, counts := s.Classes(), map[string]int{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.changes[s.mark:] {
		if c.Type != watch.Modified {
			counts[fmt.Sprintf("%s %s %s", strings.ToLower(string(c.Type)), c.Resource, class(c.Resource, c.Name()))]++
		}
	}
	return counts
}

// Classes returns a function that names objects: by generateName and "*" if the name was generated, and by their names
// otherwise. It knows every object that was recorded.
func (s *States) Classes() func(resource, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	classes := map[[2]string]string{}
	name := func(resource string, o Object) {
		classes[[2]string{resource, s.scope.Key(o)}] = s.scope.class(resource, o)
	}
	for resource, objects := range s.start {
		for _, o := range objects {
			name(resource, o)
		}
	}
	for _, c := range s.changes {
		name(c.Resource, c.New)
	}
	return func(resource, name string) string { return cmp.Or(classes[[2]string{resource, name}], name) }
}

// UID returns the UID of an object.
func UID(o Object) types.UID { return types.UID(field(o, "metadata", "uid")) }

// withoutNamespace replaces the name of the run's namespace wherever it occurs.
func withoutNamespace(text, namespace string) string {
	return strings.ReplaceAll(text, namespace, "NAMESPACE")
}

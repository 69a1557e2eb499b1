// Package oracle says whether a controller did well, from the outside: from the states that the API server
// went through, and what the controller asked for.
//
//   - [Watch] keeps every state of some resources in a namespace, in the order in which etcd saw them.
//   - [Rules] are conditions on such states, in CEL.
//   - [Normalize] and [Compare] tell whether two worlds are the same, but for what is never the same twice.
//   - [Effects] counts what a controller's writes came to, from a recording.
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

// Object is an object as JSON has it. Who gets one from here must not change it.
type Object = map[string]any

// Change is a step from one state to the next.
type Change struct {
	Type     watch.EventType // Added, Modified or Deleted
	Resource string          // plural, such as "pods"
	Time     time.Time       // when we were told
	Old, New Object          // Old is nil for Added. New of Deleted is the last state

	version uint64
}

// Name is the name of the object.
func (c Change) Name() string { return field(c.New, "metadata", "name") }

// field returns a string in an object, or "".
func field(o Object, path ...string) string {
	text, _, _ := unstructured.NestedString(o, path...)
	return text
}

// State is the objects at one time, by resource, each by name.
type State map[string]map[string]Object

// clone copies the state, not its objects.
func (s State) clone() State {
	c := State{}
	for resource, objects := range s {
		c[resource] = maps.Clone(objects)
	}
	return c
}

// List returns the objects of a resource, by name.
func (s State) List(resource string) []Object {
	var objects []Object
	for _, name := range slices.Sorted(maps.Keys(s[resource])) {
		objects = append(objects, s[resource][name])
	}
	return objects
}

// States are the states that some resources of a namespace go through.
type States struct {
	work   sync.WaitGroup
	cancel context.CancelFunc

	mu      sync.Mutex
	start   State
	now     State
	seen    map[string]uint64 // the last resourceVersion, by resource
	changes []Change
	changed chan struct{} // closed at the next change
	failed  error
	since   map[string]time.Time // when the watch of a resource began to fail
	gaps    int
	mark    int // of changes, where Counts begins
}

// rootCA is the ConfigMap that each namespace gets, when it gets it.
const rootCA = "kube-root-ca.crt"

// Watch begins to watch. Everything is kept from the present state on, until Stop is called. A watch that
// breaks goes on where it was; one that cannot is an error, of [States.Err].
func Watch(ctx context.Context, client dynamic.Interface, namespace string, resources []schema.GroupVersionResource) (*States, error) {
	s := &States{start: State{}, now: State{}, seen: map[string]uint64{}, changed: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(ctx)
	for _, r := range resources {
		if err := s.watch(ctx, client.Resource(r).Namespace(namespace), r.Resource); err != nil {
			s.Stop()
			return nil, fmt.Errorf("watch %s of %s: %w", r.Resource, namespace, err)
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
		s.start[resource][item.GetName()] = item.Object
	}
	s.now[resource] = maps.Clone(s.start[resource])
	s.seen[resource], _ = strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	s.mu.Unlock()
	s.work.Go(func() {
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

// follow watches from a resourceVersion on until the watch ends. It returns how far it came.
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
		s.see(event.Type, resource, object)
		from = object.GetResourceVersion()
	}
	return from, nil
}

// catchUp asks for what there is now, where it is too late to be told of each change. The states between are
// not known.
func (s *States) catchUp(ctx context.Context, client dynamic.ResourceInterface, resource, since string) (from string, err error) {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return since, err
	}
	s.mu.Lock()
	s.gaps++
	before := maps.Clone(s.now[resource])
	s.mu.Unlock()
	for _, item := range list.Items {
		old := before[item.GetName()]
		delete(before, item.GetName())
		switch {
		case old == nil:
			s.see(watch.Added, resource, &item)
		case field(old, "metadata", "resourceVersion") != item.GetResourceVersion():
			s.see(watch.Modified, resource, &item)
		}
	}
	for _, object := range before {
		gone := (&unstructured.Unstructured{Object: object}).DeepCopy()
		gone.SetResourceVersion(list.GetResourceVersion())
		s.see(watch.Deleted, resource, gone)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if version, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64); err == nil {
		s.seen[resource] = max(s.seen[resource], version)
	}
	return list.GetResourceVersion(), nil
}

// patience is how long a watch that cannot be had is tried for.
const patience = time.Minute

// retry waits a moment after an error. One that lasts is why states are missing.
func (s *States) retry(ctx context.Context, resource string, err error) {
	s.mu.Lock()
	if s.since == nil {
		s.since = map[string]time.Time{}
	}
	if s.since[resource].IsZero() {
		s.since[resource] = time.Now()
	}
	if s.failed == nil && time.Since(s.since[resource]) > patience {
		s.failed = fmt.Errorf("the watch of %s failed: %w", resource, err)
		s.tell()
	}
	s.mu.Unlock()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
}

// recover is told that a watch works.
func (s *States) recover(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, resource)
}

// Gaps returns how often states were missed, because an API server that had been restarted did not know them.
func (s *States) Gaps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gaps
}

func (s *States) see(kind watch.EventType, resource string, object *unstructured.Unstructured) {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil || kind == watch.Bookmark {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	change := Change{Type: kind, Resource: resource, Time: time.Now(), Old: s.now[resource][object.GetName()], New: object.Object, version: version}
	if kind == watch.Deleted {
		delete(s.now[resource], object.GetName())
	} else {
		s.now[resource][object.GetName()] = object.Object
	}
	s.seen[resource] = max(s.seen[resource], version)
	s.changes = append(s.changes, change)
	s.tell()
}

func (s *States) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Now returns the last state that is known, and a channel that is closed when there is another.
func (s *States) Now() (State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.clone(), s.changed
}

// Seen says whether the state is not older than a write of our own, whose answer had this resourceVersion.
// Of a resource that is not watched, it always is not.
func (s *States) Seen(resource, resourceVersion string) bool {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, watched := s.seen[resource]
	return err != nil || !watched || seen >= version
}

// Err says why states are missing, if they are.
func (s *States) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Stop ends the watch.
func (s *States) Stop() {
	s.cancel()
	s.work.Wait()
}

// Each calls see with every state after a change, in the order of their resourceVersions, until it returns
// an error. The state is only good during the call.
func (s *States) Each(see func(State, Change) error) error {
	s.mu.Lock()
	state, changes := s.start.clone(), slices.Clone(s.changes)
	s.mu.Unlock()
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.version, b.version) })
	for _, c := range changes {
		if c.Type == watch.Deleted {
			delete(state[c.Resource], c.Name())
		} else {
			state[c.Resource][c.Name()] = c.New
		}
		if err := see(state, c); err != nil {
			return err
		}
	}
	return nil
}

// Before returns the names of the objects that were there at the beginning.
func (s *States) Before(resource string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for name := range s.start[resource] {
		names[name] = true
	}
	return names
}

// Mark is where Counts begins.
func (s *States) Mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = len(s.changes)
}

// Counts returns how often objects came and went since Mark, by "added pods frontend-*".
func (s *States) Counts() map[string]int {
	class, counts := s.Classes(), map[string]int{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.changes[s.mark:] {
		if c.Type != watch.Modified && c.Name() != rootCA {
			counts[fmt.Sprintf("%s %s %s", strings.ToLower(string(c.Type)), c.Resource, class(c.Resource, c.Name()))]++
		}
	}
	return counts
}

// Classes returns how objects are called that have a generated name: what it was generated from, and "*".
// Others are called by their names. It knows all that there have been.
func (s *States) Classes() func(resource, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	classes := map[[2]string]string{}
	see := func(resource string, o Object) { classes[[2]string{resource, field(o, "metadata", "name")}] = class(o) }
	for resource, objects := range s.start {
		for _, o := range objects {
			see(resource, o)
		}
	}
	for _, c := range s.changes {
		see(c.Resource, c.New)
	}
	return func(resource, name string) string { return cmp.Or(classes[[2]string{resource, name}], name) }
}

// class is what an object is called.
func class(o Object) string {
	if generated := field(o, "metadata", "generateName"); generated != "" {
		return generated + "*"
	}
	return field(o, "metadata", "name")
}

// UID returns the UID of an object.
func UID(o Object) types.UID { return types.UID(field(o, "metadata", "uid")) }

// within replaces the namespace where it stands in a text.
func within(text, namespace string) string { return strings.ReplaceAll(text, namespace, "NAMESPACE") }

package oracle_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/oracle"
)

// hangs is how long anything may take that is waited for. It is no expectation, only an end.
const hangs = time.Minute

// TestMain keeps test programs with the race detector from a second of sleep at their end.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// world is an API server that knows how to list and watch, and the etcd behind it.
type world struct {
	t      *testing.T
	client dynamic.Interface

	mu      sync.Mutex
	version int                                 // of the last change
	objects map[string]map[string]oracle.Object // by resource and name
	events  []event                             // since the last compaction
	oldest  int                                 // the oldest resourceVersion that a watch can begin at
	held    map[string]bool                     // resources of which no watch is told
	refuse  func(r *http.Request) int           // an HTTP status, or 0; may be nil
	inBand  bool                                // a watch that begins too early is told so by an event
	asked   []string                            // what has been asked for: "list pods", "watch pods from 3"
	cut     chan struct{}                       // closed to cut all watches
	changed chan struct{}                       // closed at the next change
}

type event struct {
	version  int
	resource string
	Type     watch.EventType `json:"type"`
	Object   oracle.Object   `json:"object"`
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	w := &world{t: t, version: 10, objects: map[string]map[string]oracle.Object{}, held: map[string]bool{},
		cut: make(chan struct{}), changed: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(server.Close)
	t.Cleanup(w.cutWatches)
	config := &rest.Config{Host: server.URL, QPS: -1}
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	w.client, err = dynamic.NewForConfigAndClient(config, client)
	require.NoError(t, err)
	return w
}

// watch watches resources of the namespace shop, until the test ends.
func (w *world) watch(resources ...string) *oracle.States {
	w.t.Helper()
	var all []schema.GroupVersionResource
	for _, r := range resources {
		all = append(all, schema.GroupVersionResource{Version: "v1", Resource: r})
	}
	s, err := oracle.Watch(w.t.Context(), w.client, oracle.Scope{Namespace: "shop"}, all)
	require.NoError(w.t, err)
	w.t.Cleanup(s.Stop)
	return s
}

func (w *world) serve(out http.ResponseWriter, r *http.Request) {
	resource, query := path.Base(r.URL.Path), r.URL.Query()
	isWatch := query.Get("watch") == "true"
	w.mu.Lock()
	if path.Dir(r.URL.Path) != "/api/v1/namespaces/shop" {
		w.t.Errorf("asked for %s", r.URL.Path)
	}
	asked := "list " + resource
	if isWatch {
		asked = "watch " + resource + " from " + query.Get("resourceVersion")
	}
	w.asked = append(w.asked, asked)
	refusal := 0
	if w.refuse != nil {
		refusal = w.refuse(r)
	}
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	isOld := isWatch && from != 0 && from < w.oldest
	list := w.list(resource)
	inBand, cut := w.inBand, w.cut
	w.mu.Unlock()

	out.Header().Set("Content-Type", "application/json")
	switch {
	case refusal != 0:
		w.answer(out, refusal, status(refusal, "InternalError"))
	case isOld && inBand:
		w.answer(out, http.StatusOK, event{Type: watch.Error, Object: status(http.StatusGone, "Expired")})
	case isOld:
		w.answer(out, http.StatusGone, status(http.StatusGone, "Gone"))
	case isWatch:
		w.serveWatch(out, r, resource, from, cut)
	default:
		w.answer(out, http.StatusOK, list)
	}
}

// list is the answer to a list.
func (w *world) list(resource string) oracle.Object {
	items := []oracle.Object{}
	for _, name := range slices.Sorted(maps.Keys(w.objects[resource])) {
		items = append(items, w.objects[resource][name])
	}
	return oracle.Object{"kind": "List", "apiVersion": "v1", "items": items,
		"metadata": oracle.Object{"resourceVersion": strconv.Itoa(w.version)}}
}

func status(code int, reason string) oracle.Object {
	return oracle.Object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "on purpose"}
}

func (w *world) answer(out http.ResponseWriter, code int, what any) {
	text, err := json.Marshal(what)
	if err != nil {
		w.t.Error(err)
	}
	out.WriteHeader(code)
	_, _ = out.Write(append(text, '\n'))
	out.(http.Flusher).Flush()
}

func (w *world) serveWatch(out http.ResponseWriter, r *http.Request, resource string, from int, cut <-chan struct{}) {
	out.WriteHeader(http.StatusOK)
	out.(http.Flusher).Flush()
	w.mu.Lock()
	var first []event
	if from == 0 { // what there is comes as if it was new
		for _, name := range slices.Sorted(maps.Keys(w.objects[resource])) {
			first = append(first, event{w.version, resource, watch.Added, w.objects[resource][name]})
		}
	}
	w.mu.Unlock()
	for {
		w.mu.Lock()
		changed := w.changed
		todo := first
		first = nil
		for _, e := range w.events {
			if e.resource == resource && e.version > from && !w.held[resource] {
				todo = append(todo, e)
			}
		}
		w.mu.Unlock()
		for _, e := range todo {
			text, err := json.Marshal(e)
			if err != nil {
				w.t.Error(err)
			}
			_, _ = out.Write(append(text, '\n'))
			from = e.version
		}
		out.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// happen puts a change into etcd. Of w.mu.
func (w *world) happen(kind watch.EventType, resource string, object oracle.Object) {
	w.events = append(w.events, event{w.version, resource, kind, object})
	w.tell()
}

func (w *world) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// put makes an object, or changes it. more is put into its metadata.
func (w *world) put(resource, name string, more ...oracle.Object) (resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	resourceVersion = strconv.Itoa(w.version)
	metadata := oracle.Object{"name": name, "namespace": "shop", "uid": "uid-" + name, "resourceVersion": resourceVersion}
	for _, m := range more {
		maps.Copy(metadata, m)
	}
	object := oracle.Object{"kind": "Thing", "apiVersion": "v1", "metadata": metadata}
	kind := watch.Modified
	if w.objects[resource] == nil {
		w.objects[resource] = map[string]oracle.Object{}
	}
	if w.objects[resource][name] == nil {
		kind = watch.Added
	}
	w.objects[resource][name] = object
	w.happen(kind, resource, object)
	return resourceVersion
}

// remove removes an object.
func (w *world) remove(resource, name string) (resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	resourceVersion = strconv.Itoa(w.version)
	object := maps.Clone(w.objects[resource][name])
	metadata := maps.Clone(object["metadata"].(oracle.Object))
	metadata["resourceVersion"] = resourceVersion
	object["metadata"] = metadata
	delete(w.objects[resource], name)
	w.happen(watch.Deleted, resource, object)
	return resourceVersion
}

// bookmark tells the watches of a resource how far they are.
func (w *world) bookmark(resource string) (resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	resourceVersion = strconv.Itoa(w.version)
	w.happen(watch.Bookmark, resource, oracle.Object{"kind": "Thing", "apiVersion": "v1", "metadata": oracle.Object{"resourceVersion": resourceVersion}})
	return resourceVersion
}

// hold keeps what happens to a resource from its watches, until it is called again.
func (w *world) hold(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[resource] = !w.held[resource]
	w.tell()
}

// cutWatches cuts the watches that there are.
func (w *world) cutWatches() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.cut)
	w.cut = make(chan struct{})
}

// compact forgets what has happened. Who has not heard of all of it never will.
func (w *world) compact() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events, w.oldest = nil, w.version
}

// refuses sets what is refused.
func (w *world) refuses(what func(r *http.Request) int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = what
}

// askedFor waits until something has been asked for so many times.
func (w *world) askedFor(what string, times int) {
	w.t.Helper()
	is := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		others := func(asked string) bool { return asked != what }
		return len(slices.DeleteFunc(slices.Clone(w.asked), others)) >= times
	}
	require.Eventually(w.t, is, hangs, time.Millisecond, "%q is not asked for %d times", what, times)
}

// await waits until a state is as it should be.
func await(t *testing.T, s *oracle.States, what string, is func(oracle.State) bool) {
	t.Helper()
	for late := time.After(hangs); ; {
		state, changed := s.Now()
		if is(state) {
			return
		}
		select {
		case <-changed:
		case <-late:
			require.FailNow(t, "it does not come to "+what)
		}
	}
}

// seen waits until a change has been heard of.
func seen(t *testing.T, s *oracle.States, resource, resourceVersion string) {
	t.Helper()
	await(t, s, fmt.Sprintf("%s at %s", resource, resourceVersion), func(oracle.State) bool { return s.Seen(resource, resourceVersion) })
}

// told is what Each tells, one a line: the change, and the state that it leads to.
func told(t *testing.T, s *oracle.States) []string {
	t.Helper()
	var lines []string
	require.NoError(t, s.Each(func(state oracle.State, c oracle.Change) error {
		var names []string
		for _, resource := range slices.Sorted(maps.Keys(state)) {
			for _, o := range state.List(resource) {
				names = append(names, o["metadata"].(oracle.Object)["name"].(string))
			}
		}
		lines = append(lines, fmt.Sprint(c.Type, " ", c.Resource, " ", c.Name(), ": ", names))
		return nil
	}))
	return lines
}

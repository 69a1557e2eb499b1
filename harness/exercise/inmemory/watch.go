package inmemory

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// selector selects objects by namespace, labels and fields.
type selector struct {
	namespace, name string
	labels          labels.Selector
	fields          fields.Selector
}

func newSelector(t target, r *http.Request) (selector, error) {
	query := r.URL.Query()
	s := selector{namespace: t.namespace, name: t.name}
	var err error
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	return s, nil
}

func (s selector) matches(object Object) bool {
	if object == nil || s.namespace != "" && metadata(object, "namespace") != s.namespace || s.name != "" && metadata(object, "name") != s.name {
		return false
	}
	set, _, _ := unstructured.NestedStringMap(object, "metadata", "labels")
	return s.labels.Matches(labels.Set(set)) && s.fields.Matches(fieldsOf(object))
}

// fieldsOf gives a field selector access to all fields of an object.
type fieldsOf Object

// Has implements fields.Fields.
func (f fieldsOf) Has(field string) bool { return f.Get(field) != "" }

// Get implements fields.Fields.
func (f fieldsOf) Get(field string) string {
	value, found, _ := unstructured.NestedFieldNoCopy(f, strings.Split(field, ".")...)
	if !found {
		return ""
	}
	return fmt.Sprint(value)
}

// watch is a watch that a client has open.
type watch struct {
	resource schema.GroupResource
	selector selector
	client   *Client
	cancel   context.CancelFunc

	mu       sync.Mutex
	pending  []event
	released bool          // no event is held back any longer
	wake     chan struct{} // has a value when there is something to do
}

// event is an event for one watch. With an empty kind, it is a change that the watch's selector does not select.
type event struct {
	kind    string
	object  any
	time    time.Time
	changed string // in a few words
}

// add adds a change to the watch's pending events, if it concerns the watch.
func (w *watch) add(c change) {
	if c.resource != w.resource {
		return
	}
	is, was := w.selector.matches(c.object) && c.kind != "DELETED", w.selector.matches(c.old)
	kind := "MODIFIED"
	switch {
	case !is && !was:
		return
	case is && !was:
		kind = "ADDED"
	case !is:
		kind = "DELETED"
	}
	e := event{kind: kind, object: c.object, time: c.time}
	if kind == "MODIFIED" {
		e.changed = describe(c.old, c.object)
	}
	w.queue(e)
}

func (w *watch) queue(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = append(w.pending, e)
	w.signal()
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.released = true
	w.signal()
}

func (w *watch) stop() { w.cancel() }

// next returns the next event, or false if there is none.
func (w *watch) next() (event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		return event{}, false
	}
	e := w.pending[0]
	w.pending = w.pending[1:]
	return e, true
}

func (w *watch) isReleased() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.released
}

// watch begins a watch, whose events are written to the returned reader until ctx is cancelled.
func (s *Server) watch(ctx context.Context, c *Client, t target, r *http.Request, request history.Request, effects []apiproxy.Effect) (io.ReadCloser, error) {
	selects, err := newSelector(t, r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{resource: t.GroupResource(), selector: selects, client: c, cancel: cancel, wake: make(chan struct{}, 1)}

	s.mu.Lock()
	from, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	initial := query.Get("sendInitialEvents") == "true"
	switch {
	case from == 0 || initial:
		for _, object := range s.objects[w.resource] {
			if selects.matches(object) {
				w.queue(event{kind: "ADDED", object: object, time: time.Now()})
			}
		}
		if initial {
			w.queue(event{kind: "BOOKMARK", object: Object{
				"kind": s.kinds[t.GroupVersionResource], "apiVersion": t.GroupVersion().String(),
				"metadata": Object{
					"resourceVersion": strconv.FormatInt(s.version, 10), "creationTimestamp": nil,
					"annotations": Object{metav1.InitialEventsAnnotationKey: "true"},
				},
			}, time: time.Now()})
		}
	case from < s.version && (len(s.changes) == 0 || s.changes[0].version > from+1):
		w.queue(expired())
	default:
		for _, c := range s.changes {
			if c.version > from {
				w.add(c)
			}
		}
	}
	s.watches[w] = true
	s.mu.Unlock()

	reader, writer := io.Pipe()
	go func() {
		defer func() {
			cancel()
			s.mu.Lock()
			delete(s.watches, w)
			s.mu.Unlock()
			writer.Close()
			request.Open, request.Duration = false, time.Since(request.Start)
			s.put(history.Record{Request: &request})
		}()
		context.AfterFunc(ctx, func() { writer.CloseWithError(io.EOF) })
		s.deliver(ctx, w, writer, request, effects)
	}()
	return &watchBody{reader, cancel}, nil
}

// watchBody is the body of a watch's response. When the client closes it, the watch ends, as with a connection.
type watchBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

func expired() event {
	status := apierrors.NewResourceExpired("too old resource version").Status()
	status.Kind, status.APIVersion = "Status", "v1"
	return event{kind: "ERROR", object: status, time: time.Now()}
}

// deliver writes the events of a watch until ctx is cancelled, the client is gone, or a fault ends the watch.
func (s *Server) deliver(ctx context.Context, w *watch, to io.Writer, request history.Request, effects []apiproxy.Effect) {
	for number := 1; ; {
		e, ok := w.next()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		for _, effect := range effects {
			if w.isReleased() {
				break
			}
			if effect.Late > 0 {
				sleep(ctx, time.Until(e.time.Add(effect.Late)))
			}
			if e.kind == "BOOKMARK" || effect.Watch == "" || number < max(effect.Event, 1) {
				continue
			}
			switch effect.Watch {
			case apiproxy.WatchCut:
				if number == max(effect.Event, 1) {
					return
				}
			case apiproxy.WatchExpired:
				e = expired()
			case apiproxy.WatchHeld:
				for !w.isReleased() && ctx.Err() == nil {
					select {
					case <-w.wake:
					case <-ctx.Done():
					}
				}
			}
		}
		if ctx.Err() != nil || w.client.ctx.Err() != nil {
			return
		}
		if e.kind != "BOOKMARK" {
			number++
		}
		recorded := history.Event{Request: request.ID, Time: time.Now(), Type: e.kind, Group: w.resource.Group, Resource: w.resource.Resource, Changed: e.changed}
		if object, ok := e.object.(Object); ok {
			recorded.Namespace, recorded.Name = metadata(object, "namespace"), metadata(object, "name")
			recorded.UID, recorded.ResourceVersion = metadata(object, "uid"), metadata(object, "resourceVersion")
		}
		if recorded.Time.After(e.time) {
			recorded.Came = e.time
		}
		s.put(history.Record{Event: &recorded})
		if _, err := to.Write(encode(Object{"type": e.kind, "object": e.object})); err != nil {
			return
		}
		if e.kind == "ERROR" {
			return
		}
	}
}

// sleep waits for d, or until ctx is cancelled.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return // in virtual time, a timer that is due crashes the race detector now and then: https://go.dev/issue/78156
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// put passes a record on.
func (s *Server) put(r history.Record) {
	s.recording.Lock()
	defer s.recording.Unlock()
	s.record(r)
}

package apiproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/controllers/harness/history"
)

// format is an encoding of the events of a watch.
type format struct {
	read  func(in frames, frame []byte) ([]byte, error) // reads one event, into frame if it fits
	parse func(frame []byte) (kind string, m metadata, err error)
	frame func(event []byte) []byte // the inverse of read
	// retype returns the event with another type, such as ADDED for MODIFIED.
	retype func(event []byte, kind string) ([]byte, error)
	// expired returns an ERROR event with the reason Expired: the resourceVersion is too old.
	expired func() ([]byte, error)
}

// formats are the encodings that the API server uses, by content type.
var formats = map[string]format{
	"application/json": {
		read: readJSONFrame, parse: parseJSONEvent,
		frame: func(event []byte) []byte { return append(event, '\n') },
		retype: func(event []byte, kind string) ([]byte, error) {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(event, &fields); err != nil {
				return nil, err
			}
			return json.Marshal(map[string]any{"type": kind, "object": fields["object"]})
		},
		expired: func() ([]byte, error) {
			return json.Marshal(map[string]any{"type": "ERROR", "object": tooOld()})
		},
	},
	"application/vnd.kubernetes.protobuf": {
		read: readProtobufFrame, parse: parseProtobufEvent,
		frame: func(event []byte) []byte {
			return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
		},
		retype: func(event []byte, kind string) ([]byte, error) {
			var decoded metav1.WatchEvent
			if err := decoded.Unmarshal(event); err != nil {
				return nil, err
			}
			decoded.Type = kind
			return decoded.Marshal()
		},
		expired: func() ([]byte, error) {
			var object bytes.Buffer
			if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(tooOld(), &object); err != nil {
				return nil, err
			}
			return (&metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: object.Bytes()}}).Marshal()
		},
	},
}

// tooOld is the Status that the API server sends when it no longer has the history since a resourceVersion.
func tooOld() *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone,
		Message: "too old resource version, on purpose of the workshop's proxy",
	}
}

// UnobservedLimit is how long an unobserved event is held back. If no other event of its object comes by then, it is
// forwarded after all.
const UnobservedLimit = 2 * time.Second

// editor forwards a watch event by event, and carries out the injection. Unlike [exchange.watch], it may hold events
// back, replace them or leave them out.
type editor struct {
	*exchange
	format  format
	write   func([]byte) error
	waiting []waiting       // events that have arrived and have not been forwarded, in the order of arrival
	number  int             // how many events have arrived; bookmarks do not count
	held    <-chan struct{} // closed when the events are released; nil if they are not held

	// done says what has happened to any event: it was late, it was left out, it was to be left out and came late instead, or
	// it was a bookmark that was left out.
	done struct{ late, unobserved, delayed, noBookmarks bool }
}

// waiting is an event that has arrived and has not been forwarded.
type waiting struct {
	event  []byte
	record history.Event
	due    time.Time // it is not forwarded before this time
	hidden bool      // it is unobserved: forwarded only if no event of its object replaces it before due
	last   bool      // the watch ends with this event, or without an event if event is empty
	err    error     // what the watch ends with, if last
	by     *Armed    // hidden by it; nil if by the fault of the whole watch
}

// edit forwards a watch and carries out the injection. A watch in an encoding that it does not know is forwarded
// unchanged.
func (x *exchange) edit(response *http.Response, contentType string, write func([]byte) error) error {
	format, ok := formats[contentType]
	if !ok {
		x.record.Injected = x.injection.recorded(contentType + " is not understood")
		return x.watch(response, contentType, write)
	}
	e := &editor{exchange: x, format: format, write: write}
	defer e.skipRest()
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	coming, ended := make(chan []byte), make(chan error, 1)
	go func() { // ends when the body does, at the latest when it is closed below
		in := bufio.NewReader(response.Body)
		for {
			event, err := format.read(in, nil)
			if err != nil {
				ended <- err
				return
			}
			select {
			case coming <- event:
			case <-ctx.Done():
				ended <- ctx.Err()
				return
			}
		}
	}()
	defer func() {
		cancel()
		response.Body.Close()
		<-ended
	}()
	finished := ended
	over := func() {} // ends what the proxy's hold has begun for the events that wait
	defer func() { over() }()
	isHolding := false
	for {
		wait, done, err := e.passOn(finished == nil)
		if done || err != nil {
			return err
		}
		if isWaiting := wait > 0; isWaiting != isHolding {
			over()
			over, isHolding = func() {}, isWaiting
			if isWaiting {
				over = e.proxy.hold(history.EventsLate)
			}
		}
		if finished == nil && len(e.waiting) == 0 {
			return nil
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case event := <-coming:
			if err := e.come(event); err != nil {
				return err
			}
		case err := <-finished:
			ended <- err // for the deferred function
			finished = nil
			if !errors.Is(err, io.EOF) {
				e.waiting = append(e.waiting, waiting{due: time.Now().Add(x.injection.Late), last: true, err: err})
			}
		case <-timer:
		case <-e.held:
			e.held = nil
		case <-x.ctx.Done():
			return context.Cause(x.ctx)
		}
	}
}

// skipRest records what has had no effect by the end of the watch, and what came in its place.
func (e *editor) skipRest() {
	e.record.Injected = slices.Clone(e.record.Injected) // the recorder has the open watch's
	for i := range e.record.Injected {
		one := &e.record.Injected[i]
		switch {
		case one.Event > e.number:
			one.Skipped = "the watch ended before"
		case one.Kind == history.EventsLate && !e.done.late:
			one.Skipped = "no event came"
		case one.Kind == history.WatchUnobserved && !e.done.unobserved:
			one.Skipped = "no other event of the object came in time"
		case one.Kind == history.NoBookmarks && !e.done.noBookmarks:
			one.Skipped = "no bookmark came"
		}
	}
	if e.done.delayed {
		e.record.Injected = append(e.record.Injected, history.Injection{Kind: history.EventsLate, Duration: UnobservedLimit, SideEffect: true})
	}
	history.SortInjections(e.record.Injected)
}

// come queues an event that has arrived, or what is injected in its place.
func (e *editor) come(event []byte) error {
	kind, m, err := e.format.parse(event)
	if err != nil {
		return err
	}
	w := waiting{event: event, due: time.Now().Add(e.injection.Late)}
	w.record = e.event(kind, m, 0)
	w.record.Came = time.Now()
	e.done.late = true
	if kind == "BOOKMARK" {
		if e.injection.noBookmarks && !bytes.Contains(event, []byte(metav1.InitialEventsAnnotationKey)) {
			e.done.noBookmarks = true
			return nil
		}
	} else {
		e.number++
		if e.injection.Watch != "" && e.number == e.injection.Event {
			if err := e.disturb(&w, e.injection.Watch); err != nil {
				return err
			}
		}
		for _, f := range e.injection.atEvents {
			if !f.isAtEvent() || w.last || w.hidden {
				continue
			}
			if err := e.disturb(&w, f.Watch); err != nil {
				return err
			}
			e.record.Injected = append(slices.Clone(e.record.Injected), injection{Effect: Effect{Watch: f.Watch, Event: e.number}}.recorded("")...)
			w.by = f
			f.met.Store(!w.hidden)
		}
	}
	e.waiting = append(e.waiting, w)
	return nil
}

// disturb does to an event what is to happen to it.
func (e *editor) disturb(w *waiting, what string) (err error) {
	switch what {
	case WatchCut:
		*w = waiting{due: w.due, last: true, err: errOnPurpose}
	case WatchExpired:
		w.last = true
		if w.event, err = e.format.expired(); err != nil {
			return err
		}
		w.record = e.event("ERROR", metadata{}, 0)
	case WatchUnobserved:
		w.hidden = true
		w.due = w.due.Add(UnobservedLimit)
	case WatchHeld:
		e.held = e.proxy.released()
	}
	return nil
}

// passOn forwards the events that are due. complete says whether all events have arrived. passOn returns how long it
// takes until the next event is due, 0 if that is not known; and whether the watch has ended.
func (e *editor) passOn(complete bool) (wait time.Duration, done bool, err error) {
	for len(e.waiting) > 0 && e.held == nil {
		first := &e.waiting[0]
		if first.hidden && !complete {
			replaced, err := e.replace()
			if err != nil {
				return 0, false, err
			}
			if replaced {
				e.done.unobserved = true
				continue
			}
		}
		if wait := time.Until(first.due); wait > 0 && !(first.hidden && complete) {
			return wait, false, nil
		}
		w := *first
		e.done.delayed = e.done.delayed || w.hidden && !complete
		e.waiting = e.waiting[1:]
		if len(w.event) > 0 {
			framed := e.format.frame(w.event)
			w.record.Bytes, w.record.Time = len(framed), time.Now()
			e.proxy.recordEvent(w.record)
			if err := e.write(framed); err != nil {
				return 0, false, err
			}
		}
		if w.last {
			return 0, true, w.err
		}
	}
	return 0, false, nil
}

// replace removes the first event if another event of the same object has arrived. It says whether it did.
func (e *editor) replace() (bool, error) {
	hidden, by := e.waiting[0].record, e.waiting[0].by
	for i := range e.waiting[1:] {
		next := &e.waiting[1+i]
		if next.record.Type == "BOOKMARK" || next.record.Namespace != hidden.Namespace || next.record.Name != hidden.Name {
			continue
		}
		rest := e.waiting[1:]
		if hidden.Type == "ADDED" {
			switch next.record.Type {
			case "MODIFIED": // of an object that the client does not know yet
				var err error
				if next.event, err = e.format.retype(next.event, "ADDED"); err != nil {
					return false, err
				}
				next.record.Type = "ADDED"
			case "DELETED":
				rest = append(append([]waiting{}, rest[:i]...), rest[i+1:]...)
			}
		}
		e.waiting = rest
		if by != nil {
			by.met.Store(true)
		}
		return true, nil
	}
	return false, nil
}

package apiproxy

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"time"

	"example.com/controllers/harness/history"
)

// watch passes a watch on and records its events. Where it is not understood (it is compressed in
// another way, or encoded in another way), it passes without.
//
// A client-go informer of 1.35 or later gets its watch compressed, from an API server of 1.37 or later:
// a gzip member for each batch of events. So events are found in what passes; the bytes that pass are
// the API server's own in any case.
func (x *exchange) watch(response *http.Response, contentType string, write func([]byte) error) error {
	found := &events{exchange: x}
	pass := func(data []byte) error {
		found.passed(data)
		return write(data)
	}
	finish := func() error { return nil }
	if x.plan.late > 0 {
		queue := newQueue(x.ctx, x.plan.late)
		// What is found is recorded when it is passed on, and that is not yet.
		pass, finish = queue.put(found, write), queue.finish
	}
	through := newRelay(response.Body, pass)
	found.read(response, contentType, through)
	err := through.finish()
	if len(found.waiting) > 0 {
		_ = pass(nil) // they were understood only after their last byte had been passed on
	}
	x.record.Received += found.unclaimed
	if lateErr := finish(); err == nil {
		err = lateErr
	}
	return err
}

// events are the events that were found in a watch.
type events struct {
	*exchange
	waiting   []history.Event // found in what has not been passed on; Bytes are before compression
	unclaimed int64           // bytes that were passed on and belong to no event yet
}

// read reads the events of a watch, until it ends or is not understood.
func (e *events) read(response *http.Response, contentType string, through *relay) {
	readFrame, parse := readJSONFrame, parseJSONEvent
	switch contentType {
	case "application/json":
	case "application/vnd.kubernetes.protobuf":
		readFrame, parse = readProtobufFrame, parseProtobufEvent
	default:
		return
	}
	plain, err := decompressed(response, through)
	if err != nil {
		return
	}
	var in frames = through
	isPlain := plain == through
	if !isPlain {
		in = bufio.NewReader(plain)
	}
	var frame []byte
	for {
		if frame, err = readFrame(in, frame); err != nil {
			return
		}
		kind, m, err := parse(frame)
		if err != nil {
			return
		}
		e.found(kind, m, len(frame))
		if isPlain {
			// This event's bytes end here, so they can go. With the line's end, if it has come.
			through.skipSpace()
			if through.passOn() != nil {
				return
			}
		}
		if cap(frame) > 1<<20 {
			frame = nil
		}
	}
}

func (e *events) found(kind string, m metadata, size int) {
	o := object{e.resource(), m.namespace, m.name}
	switch {
	case kind == "ERROR":
		m = metadata{} // of a Status
	case kind == "BOOKMARK":
		e.proxy.seen.version(o.resource, m.resourceVersion)
	case kind == "DELETED":
		e.proxy.seen.gone(o)
		e.proxy.seen.version(o.resource, m.resourceVersion)
	default:
		e.proxy.seen.object(o, m.resourceVersion)
	}
	e.waiting = append(e.waiting, history.Event{
		Request: e.record.ID, Type: kind, Group: e.record.Group, Resource: e.record.Resource,
		Namespace: m.namespace, Name: m.name, UID: m.uid, ResourceVersion: m.resourceVersion, Bytes: size,
	})
}

// passed records the events in data, which is about to be passed on.
func (e *events) passed(data []byte) { e.deliver(e.claim(data)) }

// claim returns the events whose last bytes are in data. They share what bytes there are.
func (e *events) claim(data []byte) []history.Event {
	e.unclaimed += int64(len(data))
	claimed := e.waiting
	e.waiting = nil
	var sizes int64
	for _, event := range claimed {
		sizes += int64(event.Bytes)
	}
	for i := range claimed {
		size := int64(claimed[i].Bytes)
		share := e.unclaimed
		if sizes > 0 {
			share = e.unclaimed * size / sizes
		}
		claimed[i].Bytes = int(share)
		e.unclaimed -= share
		sizes -= size
	}
	return claimed
}

func (e *events) deliver(claimed []history.Event) {
	now := time.Now()
	for _, event := range claimed {
		event.Time = now
		e.proxy.recordEvent(event)
	}
}

// queue passes things on late, in their order.
type queue struct {
	ctx   context.Context
	late  time.Duration
	items chan item
	done  chan struct{}
	err   error // once done
}

type item struct {
	due    time.Time
	data   []byte
	events []history.Event
}

// queued is how many items may wait. When there are more, what comes next is later than it should be.
const queued = 1 << 14

func newQueue(ctx context.Context, late time.Duration) *queue {
	return &queue{ctx: ctx, late: late, items: make(chan item, queued), done: make(chan struct{})}
}

// put starts the queue and returns what puts data into it.
func (q *queue) put(found *events, write func([]byte) error) func([]byte) error {
	go func() {
		defer close(q.done)
		for i := range q.items {
			select {
			case <-time.After(time.Until(i.due)):
			case <-q.ctx.Done():
				q.err = context.Cause(q.ctx)
				return
			}
			found.deliver(i.events)
			if q.err = write(i.data); q.err != nil {
				return
			}
		}
	}()
	return func(data []byte) error {
		select {
		case q.items <- item{time.Now().Add(q.late), bytes.Clone(data), found.claim(data)}:
			return nil
		case <-q.done:
			return q.err
		}
	}
}

// finish waits until everything has been passed on.
func (q *queue) finish() error {
	close(q.items)
	<-q.done
	return q.err
}

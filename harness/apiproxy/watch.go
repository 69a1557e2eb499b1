package apiproxy

import (
	"bufio"
	"net/http"
	"time"

	"example.com/controllers/harness/history"
)

// watch forwards a watch unchanged and records its events. It records no events if it does not know the encoding or the
// compression.
//
// An API server of 1.37 or later compresses the watches of client-go informers of 1.35 or later, with a gzip member for
// each batch of events. So the proxy does not encode events anew: it finds them in the bytes that it forwards.
func (x *exchange) watch(response *http.Response, contentType string, write func([]byte) error) error {
	found := &events{exchange: x}
	pass := func(data []byte) error {
		found.passed(data)
		return write(data)
	}
	through := newRelay(response.Body, pass)
	found.read(response, contentType, through)
	err := through.finish()
	if len(found.waiting) > 0 {
		_ = pass(nil) // they were parsed only after their last byte had been forwarded
	}
	x.record.Received += found.unclaimed
	return err
}

// events are the events that have been found in a watch.
type events struct {
	*exchange
	waiting   []history.Event // events whose bytes have not been forwarded; their Bytes are uncompressed
	unclaimed int64           // bytes that have been forwarded and belong to no event yet
}

// read reads the events of a watch until it ends or cannot be parsed.
func (e *events) read(response *http.Response, contentType string, through *relay) {
	format, ok := formats[contentType]
	if !ok {
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
		if frame, err = format.read(in, frame); err != nil {
			return
		}
		kind, m, err := format.parse(frame)
		if err != nil {
			return
		}
		e.found(kind, m, len(frame))
		if isPlain {
			// The event is complete, so forward it, with its line break if that has arrived.
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
	e.waiting = append(e.waiting, e.event(kind, m, size))
}

// event returns the record of an event, and remembers the resourceVersion in it.
func (x *exchange) event(kind string, m metadata, size int) history.Event {
	o := object{x.resource(), m.namespace, m.name}
	switch {
	case kind == "ERROR":
		m = metadata{} // the object is a Status
	case kind == "BOOKMARK":
		x.proxy.seen.version(o.resource, m.resourceVersion)
	case kind == "DELETED":
		x.proxy.seen.gone(o)
		x.proxy.seen.version(o.resource, m.resourceVersion)
	default:
		x.proxy.seen.object(o, m.resourceVersion)
	}
	return history.Event{
		Request: x.record.ID, Type: kind, Group: x.record.Group, Resource: x.record.Resource,
		Namespace: m.namespace, Name: m.name, UID: m.uid, ResourceVersion: m.resourceVersion, Bytes: size,
	}
}

// passed records the events whose last bytes are in data, which is about to be forwarded.
func (e *events) passed(data []byte) { e.deliver(e.claim(data)) }

// claim returns the events whose last bytes are in data, and divides all unclaimed bytes among them by size.
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

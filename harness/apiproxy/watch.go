package apiproxy

import (
	"bufio"
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
	through := newRelay(response.Body, pass)
	found.read(response, contentType, through)
	err := through.finish()
	if len(found.waiting) > 0 {
		_ = pass(nil) // they were understood only after their last byte had been passed on
	}
	x.record.Received += found.unclaimed
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
	e.waiting = append(e.waiting, e.event(kind, m, size))
}

// event returns the record of an event that has come, and remembers what it says of resourceVersions.
func (x *exchange) event(kind string, m metadata, size int) history.Event {
	o := object{x.resource(), m.namespace, m.name}
	switch {
	case kind == "ERROR":
		m = metadata{} // of a Status
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

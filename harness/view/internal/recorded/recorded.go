// Package recorded makes recordings for tests.
package recorded

import (
	"time"

	"example.com/controllers/harness/history"
)

// Start is when the recordings begin.
var Start = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// Recorder makes recordings of nodes, in milliseconds since start.
type Recorder struct {
	Records []history.Record
	last    int64 // ID
}

func at(ms float64) time.Time {
	return Start.Add(time.Duration(ms * float64(time.Millisecond)))
}

// Request adds a request for a Node, or for all if name is "", and returns its ID.
func (r *Recorder) Request(from, to float64, program, verb, name string, edit func(*history.Request)) int64 {
	r.last++
	q := history.Request{ID: r.last, Start: at(from), Duration: at(to).Sub(at(from)), Agent: program + "/v1", Verb: verb, Version: "v1", Resource: "nodes",
		Name: name, URI: "/api/v1/nodes/" + name, Status: 200}
	if edit != nil {
		edit(&q)
	}
	r.Records = append(r.Records, history.Record{Request: &q})
	return q.ID
}

// Event adds an event of a watch, that came and was told at a time in milliseconds.
func (r *Recorder) Event(watch int64, ms float64, kind, name, rv string) {
	r.Records = append(r.Records, history.Record{Event: &history.Event{Request: watch, Time: at(ms), Type: kind, Resource: "nodes", Name: name, ResourceVersion: rv}})
}

// Late adds an event that was held back.
func (r *Recorder) Late(watch int64, came, ms float64, kind, name, rv string) {
	r.Event(watch, ms, kind, name, rv)
	r.Records[len(r.Records)-1].Event.Came = at(came)
}

// After says to which version a request led.
func After(rv string) func(*history.Request) {
	return func(q *history.Request) { q.RVAfter = rv }
}

// Open says that a watch has not ended.
func Open(q *history.Request) { q.Open = true }

// On says over which connection a request came, after another edit, which may be nil.
func On(connection int64, edit func(*history.Request)) func(*history.Request) {
	return func(q *history.Request) {
		q.Connection = connection
		if edit != nil {
			edit(q)
		}
	}
}

// Last is the ID of the last request.
func (r *Recorder) Last() int64 { return r.last }

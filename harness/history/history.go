package history

import (
	"slices"
	"time"
)

// History is a recording, or part of one. It is never modified.
type History struct {
	Requests []Request // sorted by Start
	Events   []Event   // sorted by Time

	Besides

	// earlier has, by ID, the watches that are not in Requests but have events in Events.
	earlier map[int64]Request
	// from and to are the limits that [History.Between] was given; zero means no limit.
	from, to time.Time
}

// Where returns the requests for which keep returns true, the events of those of them that are watches, and all that is besides.
func (h *History) Where(keep func(Request) bool) *History {
	part := &History{Besides: h.Besides, earlier: map[int64]Request{}, from: h.from, to: h.to}
	kept := map[int64]bool{}
	for id, r := range h.earlier {
		if keep(r) {
			part.earlier[id] = r
			kept[id] = true
		}
	}
	for _, r := range h.Requests {
		if keep(r) {
			part.Requests = append(part.Requests, r)
			kept[r.ID] = true
		}
	}
	for _, e := range h.Events {
		if kept[e.Request] {
			part.Events = append(part.Events, e)
		}
	}
	return part
}

// Between returns the requests that started, and the events that were forwarded, from one time (inclusive) to another
// (exclusive). This includes the events of watches that had started before. A zero time is no limit.
func (h *History) Between(from, to time.Time) *History {
	part := &History{
		Requests: between(h.Requests, from, to, func(r Request) time.Time { return r.Start }),
		Events:   between(h.Events, from, to, Event.at),
		Besides:  h.Besides.between(from, to),
		earlier:  map[int64]Request{}, from: later(h.from, from), to: sooner(h.to, to),
	}
	missing := map[int64]bool{} // watches that have events in the part
	for i := range part.Events {
		missing[part.Events[i].Request] = true
	}
	for i := range part.Requests {
		delete(missing, part.Requests[i].ID)
	}
	for id := range missing {
		if r, ok := h.earlier[id]; ok {
			part.earlier[id] = r
			delete(missing, id)
		}
	}
	for i := 0; i < len(h.Requests) && len(missing) > 0; i++ {
		if r := &h.Requests[i]; missing[r.ID] {
			delete(missing, r.ID)
			if r.Verb == "watch" {
				part.earlier[r.ID] = *r
			}
		}
	}
	return part
}

// watches returns all watches by ID, including those in earlier.
func (h *History) watches() map[int64]Request {
	watches := map[int64]Request{}
	for id, r := range h.earlier {
		watches[id] = r
	}
	for _, r := range h.Requests {
		if r.Verb == "watch" {
			watches[r.ID] = r
		}
	}
	return watches
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sooner returns the earlier of two times, where zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Span is the time that the history covers: between the limits that [History.Between] was given; without a limit, from
// the first request or event, or to the end of the last.
func (h *History) Span() time.Duration {
	first, last := h.from, h.to
	see := func(start, end time.Time) {
		if h.from.IsZero() && (first.IsZero() || start.Before(first)) {
			first = start
		}
		if h.to.IsZero() {
			last = later(last, end)
		}
	}
	for _, r := range h.Requests {
		see(r.Start, r.End())
	}
	for _, e := range h.Events {
		see(e.Time, e.Time)
	}
	return max(0, last.Sub(first))
}

// Writes returns the requests that asked for a change, including those that failed. See [Request.IsWrite].
func (h *History) Writes() []Request { return h.which(Request.IsWrite) }

// NoOps returns the writes that succeeded and changed nothing.
func (h *History) NoOps() []Request { return h.which(func(r Request) bool { return r.NoOp }) }

// WritesAfter returns the writes that started after a time.
func (h *History) WritesAfter(t time.Time) []Request {
	return h.which(func(r Request) bool { return r.IsWrite() && r.Start.After(t) })
}

func (h *History) which(keep func(Request) bool) []Request {
	var kept []Request
	for _, r := range h.Requests {
		if keep(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

// LastWrite returns the write that ended last among those that started from one time (inclusive) to another (exclusive),
// or false if there is none. A zero time is no limit.
func (h *History) LastWrite(from, to time.Time) (Request, bool) {
	var last Request
	found := false
	for _, w := range h.Between(from, to).Writes() {
		if !found || w.End().After(last.End()) {
			last, found = w, true
		}
	}
	return last, found
}

// NoWrite is what [History.TimeToLastWrite] returns for a change that was followed by no write.
const NoWrite time.Duration = -1

// TimeToLastWrite returns, for each of the times at which the world was changed, how long it took until the controller
// had written all that the change called for: until the end of the last write that started before the next change.
// It is [NoWrite] if there was no write. Leave out first what is written without a change, such as renewals of Leases.
func (h *History) TimeToLastWrite(changes []time.Time) []time.Duration {
	var durations []time.Duration
	sorted := slices.SortedFunc(slices.Values(changes), time.Time.Compare)
	for _, change := range changes {
		var next time.Time // zero after the last change: no limit
		if i := slices.IndexFunc(sorted, change.Before); i >= 0 {
			next = sorted[i]
		}
		duration := NoWrite
		if write, ok := h.LastWrite(change, next); ok {
			duration = write.End().Sub(change)
		}
		durations = append(durations, duration)
	}
	return durations
}

package view

import (
	"cmp"
	"slices"

	"example.com/controllers/harness/history"
)

// merge makes one history of several recordings of the same time, with new IDs. A request that several of them have, as proxies
// one behind the other do, is one request: as the proxy recorded it that is nearest to the client, since only that one knows what the
// client was told. seen has the events that the others saw: nobody was told of them, but they show what the API server had when.
//
// Two records are of one request if they come from the same program, ask for the same, and one began and ended while the other was
// under way. The clocks must be one machine's.
func merge(recordings []*history.History) (h *history.History, seen []history.Event) {
	if len(recordings) == 1 {
		return recordings[0], nil
	}
	type found struct {
		recording int
		request   history.Request
		inner     *found // the same request, nearer to the API server
		isInner   bool
		id        int64
	}
	type key struct{ agent, verb, uri string }
	var all []*found
	same := map[key][]*found{}
	for i, recording := range recordings {
		for _, r := range recording.Requests {
			f := &found{recording: i, request: r}
			all = append(all, f)
			k := key{r.Agent, r.Verb, r.URI}
			same[k] = append(same[k], f)
		}
	}
	for _, of := range same {
		slices.SortStableFunc(of, func(a, b *found) int { return a.request.Start.Compare(b.request.Start) })
		for i, inner := range of {
			for k := i - 1; k >= 0; k-- { // the last that had begun before
				outer := of[k]
				if outer.recording != inner.recording && outer.inner == nil && !endedBefore(outer.request, inner.request) {
					outer.inner, inner.isInner = inner, true
					break
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *found) int {
		return cmp.Or(a.request.Start.Compare(b.request.Start), cmp.Compare(a.recording, b.recording))
	})
	h = &history.History{}
	type id struct {
		recording int
		request   int64
	}
	ids := map[id]int64{} // 0 for an inner request
	for _, f := range all {
		if f.isInner {
			ids[id{f.recording, f.request.ID}] = 0
			continue
		}
		f.id = int64(len(h.Requests) + 1)
		ids[id{f.recording, f.request.ID}] = f.id
		r := f.request
		r.ID = f.id
		if r.Connection > 0 {
			r.Connection = r.Connection*int64(len(recordings)) + int64(f.recording) // each recording has its own numbers
		}
		for inner := f.inner; inner != nil; inner = inner.inner {
			r.Injected = append(slices.Clone(r.Injected), inner.request.Injected...)
			r.RVAfter = cmp.Or(r.RVAfter, inner.request.RVAfter) // of a reply that was lost on the way
		}
		h.Requests = append(h.Requests, r)
	}
	for i, recording := range recordings {
		for _, e := range recording.Events {
			switch to := ids[id{i, e.Request}]; to {
			case 0:
				seen = append(seen, e)
			default:
				e.Request = to
				h.Events = append(h.Events, e)
			}
		}
	}
	slices.SortStableFunc(h.Events, func(a, b history.Event) int { return a.Time.Compare(b.Time) })
	h.Besides = besidesOf(recordings)
	return h, seen
}

// endedBefore says whether a request had ended before another began, so that they cannot be one.
func endedBefore(outer, inner history.Request) bool {
	return !outer.Open && outer.End().Before(inner.Start)
}

// besidesOf returns what is in several recordings besides requests and events.
func besidesOf(recordings []*history.History) history.Besides {
	var all []history.Record
	for _, recording := range recordings {
		part := history.History{Besides: recording.Besides}
		all = append(all, part.Records()...)
	}
	return history.Of(all...).Besides
}

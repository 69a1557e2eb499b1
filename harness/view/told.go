package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"
)

// leastStale is for how many milliseconds a program must have been behind for a write to count as stale. Every event takes some
// time on its way.
const leastStale = 20

// leastStaleOthers is the same for other objects than the one that is written: what is new about them may have nothing to do with it.
const leastStaleOthers = 200

// latest returns, for each resource, the news about it, sorted by version. Each has the time of the soonest news of its version or a
// later one.
func (b *builder) latest() map[string][]news {
	all := map[string][]news{}
	for _, n := range b.news {
		all[n.watch.resource] = append(all[n.watch.resource], n)
	}
	for _, of := range all {
		slices.SortStableFunc(of, func(x, y news) int { return cmp.Compare(x.rv, y.rv) })
		soonest := math.Inf(1)
		for i := len(of) - 1; i >= 0; i-- {
			soonest = min(soonest, of[i].at)
			of[i].at = soonest
		}
	}
	return all
}

// heard says that a program has been told everything about an object up to a version.
type heard struct {
	at float64
	rv uint64
}

// told finds what each program with a watch has been told of each object: by events; by lists and bookmarks at a version, everything up
// to that. A list or a bookmark of a watch with a selector counts only for objects of which the program has been told before.
func (b *builder) told() {
	// A process that has a number is told something itself; otherwise, it is the program.
	who := func(mark int) int {
		m := b.model.Marks[mark]
		return m.Program*(mostNumbered+1) + m.Number
	}
	for k, spans := range b.hear(who) {
		lane := &b.model.Lanes[k.lane]
		program, number := k.who/(mostNumbered+1), k.who%(mostNumbered+1)
		lane.Told = append(lane.Told, Told{program, number, b.many[program], spans})
	}
	for i := range b.model.Lanes {
		slices.SortFunc(b.model.Lanes[i].Told, func(x, y Told) int { return cmp.Or(cmp.Compare(x.Program, y.Program), cmp.Compare(x.Number, y.Number)) })
	}
	b.knew = b.hear(func(mark int) int { return b.process[mark] })
	b.stale()
}

// hears is what somebody, a program or a process, is told of an object.
type hears struct{ lane, who int }

// hear returns what everybody was told. who says who sent a request.
func (b *builder) hear(who func(mark int) int) map[hears][]Span {
	known := map[hears][]heard{}
	for i, e := range b.model.Events {
		if e.Version >= 0 {
			rv, _ := number(b.model.Lanes[e.Lane].Versions[e.Version].RV)
			k := hears{e.Lane, who(b.heardBy[i])}
			known[k] = append(known[k], heard{e.Told, rv})
		}
	}
	ofResource := map[string][]int{}
	for i, l := range b.model.Lanes {
		if len(l.Versions) > 0 {
			ofResource[l.Resource] = append(ofResource[l.Resource], i)
		}
	}
	open := map[hears][]interval{} // when there was a watch that tells of the object
	all := map[hears]bool{}        // whether one of them tells of all objects
	type scope struct {
		who                       int
		resource, namespace, name string
		all                       bool
	}
	watched := map[scope][]interval{}
	for _, w := range b.watches {
		if m := b.model.Marks[w.mark]; m.Status < 300 && m.Status != 0 {
			s := scope{who(w.mark), w.resource, w.namespace, w.name, w.all}
			watched[s] = append(watched[s], interval{m.Start, m.End})
		}
	}
	for s, times := range watched {
		for _, lane := range ofResource[s.resource] {
			if covers(s.namespace, s.name, b.model.Lanes[lane].Name) {
				k := hears{lane, s.who}
				open[k] = append(open[k], times...)
				all[k] = all[k] || s.all
			}
		}
	}
	for _, n := range b.news {
		for _, lane := range ofResource[n.watch.resource] {
			k := hears{lane, who(n.watch.mark)}
			covered := covers(n.watch.namespace, n.watch.name, b.model.Lanes[lane].Name)
			if covered && (n.watch.all && all[k] || len(known[k]) > 0) {
				known[k] = append(known[k], heard{n.at, n.rv})
			}
		}
	}
	last := map[int]float64{} // when each sent its last request
	for i, m := range b.model.Marks {
		last[who(i)] = max(last[who(i)], m.End)
	}
	told := map[hears][]Span{}
	for k, of := range known {
		slices.SortStableFunc(of, func(x, y heard) int { return cmp.Compare(x.at, y.at) })
		times := union(open[k])
		end := last[k.who]
		if len(times) > 0 {
			end = max(end, times[len(times)-1].to)
		}
		if spans := spans(b.model.Lanes[k.lane].Versions, of, times, min(end, b.model.End)); len(spans) > 0 {
			told[k] = spans
		}
	}
	return told
}

// covers says whether a list or watch of a namespace, or of all if it is "", and of one name, or of all, has an object.
func covers(namespace, name, object string) bool {
	of, own, found := strings.Cut(object, "/")
	if !found {
		of, own = "", object
	}
	return (namespace == "" || namespace == of) && (name == "" || name == own)
}

// spanAt returns the span at a time, or false if there is none.
func spanAt(spans []Span, time float64) (Span, bool) {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].To > time })
	if i == len(spans) || spans[i].From > time {
		return Span{}, false
	}
	return spans[i], true
}

// lag is a time in which a program had not been told of what others had written to an object.
type lag struct {
	lane     int
	from, to float64
}

// stale finds the writes of programs that were behind for [leastStale] or longer.
func (b *builder) stale() {
	lags := map[int][]lag{} // by process
	for k, spans := range b.knew {
		for _, s := range spans {
			if s.Knew == s.Had || s.To-s.From < leastStale && s.Lag < leastStale || b.isOwn(k, s) {
				continue
			}
			of := lags[k.who]
			if n := len(of) - 1; n >= 0 && of[n].lane == k.lane && of[n].to == s.From {
				of[n].to = s.To
			} else {
				lags[k.who] = append(of, lag{k.lane, s.From, s.To})
			}
		}
	}
	for _, of := range lags {
		slices.SortStableFunc(of, func(x, y lag) int { return cmp.Compare(x.from, y.from) })
	}
	begun, active := map[int]int{}, map[int][]lag{}
	for i := range b.model.Marks {
		m := &b.model.Marks[i]
		p := b.process[i]
		for of := lags[p]; begun[p] < len(of) && of[begun[p]].from <= m.Start; begun[p]++ {
			active[p] = append(active[p], of[begun[p]])
		}
		active[p] = slices.DeleteFunc(active[p], func(l lag) bool { return l.to <= m.Start })
		if !isWriteVerb(m.Verb) || m.Outcome == NoOp {
			continue
		}
		b.staleMark(i, active[p])
	}
}

// staleMark enters in a write that its program was behind: on the object, or on others of the same resource.
func (b *builder) staleMark(mark int, active []lag) {
	m := &b.model.Marks[mark]
	lane := b.model.Lanes[m.Lane]
	k := hears{m.Lane, b.process[mark]}
	var stale Stale
	span, found := spanAt(b.knew[k], m.Start)
	if found = found && span.Knew != span.Had; found {
		stale.For = m.Start - lane.Versions[span.Knew+1].From
		found = stale.For >= leastStale
	}
	if found {
		stale.Own = b.isOwn(k, span)
		if span.Knew >= 0 {
			stale.Knew = lane.Versions[span.Knew].RV
		}
		if had := lane.Versions[span.Had]; !had.Gone {
			stale.Had = had.RV
		}
	}
	for _, l := range active {
		if l.lane != m.Lane && m.Start-l.from >= leastStaleOthers && b.model.Lanes[l.lane].Resource == lane.Resource {
			stale.Others = append(stale.Others, l.lane)
			if !found {
				stale.For = max(stale.For, m.Start-l.from)
			}
		}
	}
	if found || len(stale.Others) > 0 {
		stale.Others = slices.Compact(slices.Sorted(slices.Values(stale.Others)))
		stale.Text = b.staleText(stale, found)
		m.Stale = &stale
	}
}

// staleText says what a program did not know when it wrote. ofObject says whether that was about the object itself.
func (b *builder) staleText(s Stale, ofObject bool) string {
	lag := time.Duration(s.For * float64(time.Millisecond)).Round(time.Millisecond)
	text := ""
	if ofObject {
		knew, had := "no version", "the object was gone"
		if s.Knew != "" {
			knew = "version " + s.Knew
		}
		if s.Had != "" {
			had = "the API server had version " + s.Had
		}
		text = fmt.Sprintf("It had been told of %s; %s, and it had been behind for %s.", knew, had, lag)
		if s.Own {
			text += " All that it had not been told of were its own writes."
		}
	}
	if len(s.Others) == 0 {
		return text
	}
	const most = 5
	var names []string
	for _, lane := range s.Others[:min(most, len(s.Others))] {
		names = append(names, b.model.Lanes[lane].Name)
	}
	others := strings.Join(names, ", ")
	if more := len(s.Others) - most; more > 0 {
		others += fmt.Sprintf(" and %d more", more)
	}
	if ofObject {
		return text + " Nor had it been told everything about " + others + "."
	}
	return fmt.Sprintf("It had not been told everything about %s, for %s.", others, lag)
}

// isOwn says whether a process had written all versions itself that it had not been told of.
func (b *builder) isOwn(k hears, s Span) bool {
	for _, v := range b.model.Lanes[k.lane].Versions[s.Knew+1 : s.Had+1] {
		if v.Mark < 0 || b.process[v.Mark] != k.who {
			return false
		}
	}
	return true
}

// interval is a time.
type interval struct{ from, to float64 }

// union returns intervals that do not overlap, sorted.
func union(all []interval) []interval {
	slices.SortFunc(all, func(x, y interval) int { return cmp.Compare(x.from, y.from) })
	var out []interval
	for _, i := range all {
		if n := len(out) - 1; n >= 0 && i.from <= out[n].to {
			out[n].to = max(out[n].to, i.to)
		} else {
			out = append(out, i)
		}
	}
	return out
}

// in says whether a time is in one of the intervals, and when that changes next.
func in(all []interval, at float64) (is bool, until float64) {
	i := sort.Search(len(all), func(i int) bool { return all[i].to > at })
	switch {
	case i == len(all):
		return false, math.Inf(1)
	case all[i].from > at:
		return false, all[i].from
	}
	return true, all[i].to
}

// spans returns what a program knew of an object with these versions, from when it first heard until end. watching is when it had a
// watch.
func spans(versions []Version, of []heard, watching []interval, end float64) []Span {
	keys := make([]uint64, len(versions)) // 2 × the version; one more for a removal without a version
	for i, v := range versions {
		rv, ok := number(v.RV)
		switch {
		case ok:
			keys[i] = 2 * rv
		case i > 0:
			keys[i] = keys[i-1] + 1
		}
	}
	var all []Span
	var told uint64
	knew, had := -1, -1
	next := 0 // of the versions
	for i, h := range of {
		told = max(told, 2*h.rv)
		until := end
		if i+1 < len(of) {
			until = min(end, of[i+1].at)
		}
		for at := h.at; at < until; {
			for next < len(versions) && versions[next].From <= at {
				had = next
				next++
			}
			knew = sort.Search(len(keys), func(k int) bool { return keys[k] > told }) - 1
			knew = min(knew, had) // of what it was told, as far as anybody has seen it
			isOn, to := in(watching, at)
			to = min(to, until)
			if next < len(versions) {
				to = min(to, versions[next].From)
			}
			if n := len(all) - 1; n >= 0 && all[n].Knew == knew && all[n].Had == had && all[n].Off == !isOn {
				all[n].To = to
			} else {
				all = append(all, Span{From: at, To: to, Knew: knew, Had: had, Off: !isOn})
			}
			at = to
		}
	}
	for n := len(all) - 1; n >= 0 && all[n].Knew == all[n].Had && all[n].Had == len(versions)-1 && len(versions) > 0 && versions[len(versions)-1].Gone; n-- {
		all = all[:n] // it knows that the object is gone, and there is no more to be told
	}
	isBehind := func(s Span) bool { return s.Knew != s.Had && !s.Off }
	for i := 0; i < len(all); i++ {
		if !isBehind(all[i]) {
			continue
		}
		to := i
		for to+1 < len(all) && isBehind(all[to+1]) {
			to++
		}
		for k := i; k <= to; k++ {
			all[k].Lag = all[to].To - all[i].From
		}
		i = to
	}
	return all
}

package view

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"
)

// sight is one sight of a version of an object: in an event, or in the answer to a request.
type sight struct {
	text     string // the resourceVersion
	rv       uint64
	uid      string
	at       float64 // the version existed by then
	mark     int     // the request that wrote it, or -1
	created  bool
	gone     bool // the object does not exist at this version
	deleting bool
	changed  string
	event    int  // or -1
	ours     bool // of the recorder: it saw the version when it came to be
}

// number parses a resourceVersion. Those of Kubernetes are numbers, and comparable within a resource:
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
func number(rv string) (uint64, bool) {
	n, err := strconv.ParseUint(rv, 10, 64)
	return n, err == nil && n > 0
}

// sight adds a sight to a lane. It ignores one without a comparable version.
func (b *builder) sight(lane int, s sight) {
	rv, ok := number(s.text)
	if !ok {
		return
	}
	s.rv = rv
	for len(b.sights) <= lane {
		b.sights = append(b.sights, nil)
	}
	b.sights[lane] = append(b.sights[lane], s)
}

// truth finds the versions of each object: all that anybody has seen. A version came to be no later than it, or a later one, was first
// seen, and if the request that wrote it is known, not before that was sent.
func (b *builder) truth() {
	var removals []int // deletions whose answer has no version: they removed the object
	for i, m := range b.model.Marks {
		if b.model.Lanes[m.Lane].Name == "" || m.Outcome != Wrote && m.Outcome != Read && m.Outcome != NoOp && m.Outcome != Lost && m.Outcome != GaveUp || m.Verb == "watch" {
			continue
		}
		s := sight{text: m.RVAfter, at: m.End, mark: -1, event: -1}
		gotNoAnswer := m.Outcome == Lost || m.Outcome == GaveUp
		if m.Outcome == Wrote || gotNoAnswer && isWriteVerb(m.Verb) && m.RVAfter != "" && m.RVAfter != m.RVBefore { // the recorder got one
			removes := m.RVAfter == "" || m.RVAfter == m.RVBefore // by a Status, or by the removal of the last finalizer
			switch {
			case m.Verb == "delete" && removes, m.Verb != "create" && m.RVAfter != "" && removes:
				removals = append(removals, i)
				continue
			case m.Verb == "create" && m.What != b.model.Lanes[m.Lane].Resource:
				continue // of a subresource, such as an eviction
			}
			s.mark, s.created, s.deleting = i, m.Verb == "create", m.Verb == "delete"
		}
		b.sight(m.Lane, s)
	}
	b.missing()
	latest := b.latest()
	for lane, l := range b.model.Lanes {
		if lane < len(b.sights) {
			b.versions(lane, latest[l.Resource])
		}
	}
	for _, i := range removals {
		b.removed(i)
	}
	for _, m := range b.model.Marks {
		if m.Outcome == NotFound && m.Verb != "create" && m.What == b.model.Lanes[m.Lane].Resource {
			b.notFound(m)
		}
	}
	for lane := range b.model.Lanes {
		b.close(lane)
	}
}

// missing finds objects of which nobody has seen the end: a watch that began with all objects there are, and did not tell of one that had been
// there before, says that it was gone by then.
func (b *builder) missing() {
	for _, all := range b.initial {
		rv, ok := number(all.rv)
		if !ok {
			continue
		}
		for lane, sights := range b.sights {
			l := b.model.Lanes[lane]
			if l.Resource != all.watch.resource || all.lanes[lane] || !covers(all.watch.namespace, all.watch.name, l.Name) {
				continue
			}
			var last sight
			for _, s := range sights {
				if s.rv <= rv && (s.rv > last.rv || s.rv == last.rv && s.gone) {
					last = s
				}
			}
			if last.rv > 0 && !last.gone {
				b.sight(lane, sight{text: all.rv, uid: last.uid, at: all.at, mark: -1, gone: true, event: -1})
			}
		}
	}
}

// versions makes the versions of a lane from its sights, and from news of its resource: a list at a version has all that are older.
func (b *builder) versions(lane int, latest []news) {
	sights := b.sights[lane]
	slices.SortStableFunc(sights, func(x, y sight) int { return cmp.Compare(x.rv, y.rv) })
	var merged []sight
	at := map[int]int{} // by event
	for _, s := range sights {
		if n := len(merged) - 1; n < 0 || merged[n].rv != s.rv {
			merged = append(merged, s)
		} else {
			known := &merged[n]
			known.at = min(known.at, s.at)
			known.mark = max(known.mark, s.mark)
			known.created, known.deleting, known.gone = known.created || s.created, known.deleting || s.deleting, known.gone || s.gone
			known.ours = known.ours || s.ours
			known.uid, known.changed = cmp.Or(known.uid, s.uid), cmp.Or(known.changed, s.changed)
		}
		if s.event >= 0 {
			at[s.event] = len(merged) - 1
		}
	}
	for event, version := range at {
		b.model.Events[event].Version = version
	}
	soonest := math.Inf(1)
	for i := len(merged) - 1; i >= 0; i-- {
		soonest = min(soonest, merged[i].at)
		if n := sort.Search(len(latest), func(n int) bool { return latest[n].rv >= merged[i].rv }); n < len(latest) {
			soonest = min(soonest, latest[n].at)
		}
		merged[i].at = soonest
	}
	var versions []Version
	for _, s := range merged {
		v := Version{RV: s.text, UID: s.uid, From: s.at, Late: s.mark < 0 && !s.ours, Mark: s.mark, Created: s.created, Gone: s.gone, Changed: s.changed}
		if s.mark >= 0 {
			v.From = max(v.From, b.model.Marks[s.mark].Start)
		}
		if n := len(versions) - 1; n >= 0 {
			v.From = max(v.From, versions[n].From)
			v.Deleting = s.deleting && !s.gone || versions[n].Deleting && !s.gone && !s.created && versions[n].UID == cmp.Or(v.UID, versions[n].UID)
			if v.UID != "" && versions[n].UID != "" && v.UID != versions[n].UID && !versions[n].Gone {
				v.Created = true // another life of the name
			}
		} else {
			v.Deleting = s.deleting && !s.gone
		}
		versions = append(versions, v)
	}
	b.model.Lanes[lane].Versions = versions
}

// removed enters that a request removed its object. The removal may be in an event; if nobody watched, it is a version of its own,
// without a number.
func (b *builder) removed(mark int) {
	m := b.model.Marks[mark]
	versions := b.model.Lanes[m.Lane].Versions
	next := slices.IndexFunc(versions, func(v Version) bool { return v.From >= m.Start && (v.Gone || v.Created) })
	if next >= 0 && versions[next].Gone && versions[next].Mark < 0 {
		v := &versions[next]
		v.Mark, v.Late = mark, false
		v.From = min(v.From, m.End)
		for i := next - 1; i >= 0; i-- {
			versions[i].From = min(versions[i].From, v.From)
		}
		return
	}
	if next >= 0 && versions[next].Gone {
		return // by another request
	}
	if next < 0 {
		next = len(versions)
	}
	if next == 0 {
		return // nobody has seen the object
	}
	gone := Version{From: max(m.End, versions[next-1].From), Mark: mark, Gone: true, UID: versions[next-1].UID}
	b.insert(m.Lane, next, gone)
}

// notFound enters that an object was gone when it was not found. It had been deleted by somebody, unless it is there again later, with the same
// UID: then the answer was about something else.
func (b *builder) notFound(m Mark) {
	versions := b.model.Lanes[m.Lane].Versions
	next := sort.Search(len(versions), func(i int) bool { return versions[i].From > m.Start })
	if next == 0 || versions[next-1].Gone || next < len(versions) && !versions[next].Gone && !versions[next].Created {
		return
	}
	if next < len(versions) && versions[next].Gone {
		v := &versions[next]
		if v.Mark < 0 && v.Late {
			v.From = min(v.From, m.End)
		}
		return
	}
	gone := Version{From: m.End, Late: true, Mark: -1, Gone: true, UID: versions[next-1].UID}
	if next < len(versions) {
		gone.From = min(gone.From, versions[next].From)
	}
	b.insert(m.Lane, next, gone)
}

// insert inserts a version into a lane.
func (b *builder) insert(lane, at int, v Version) {
	b.model.Lanes[lane].Versions = slices.Insert(b.model.Lanes[lane].Versions, at, v)
	for i, e := range b.model.Events {
		if e.Lane == lane && e.Version >= at {
			b.model.Events[i].Version++
		}
	}
}

// close gives each version of a lane its end.
func (b *builder) close(lane int) {
	versions := b.model.Lanes[lane].Versions
	for i := range versions {
		versions[i].To = max(b.model.End, versions[i].From)
		if i+1 < len(versions) {
			versions[i].To = versions[i+1].From
		}
	}
}

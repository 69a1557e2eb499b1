package view

import (
	"sort"
)

// causes infers why each write was sent, from what its program had been told before. See [Rule].
func (b *builder) causes() {
	ofObject := map[hears][]int{} // events, sorted by Told
	ofAny := map[int][]int{}      // likewise, by process
	for i, e := range b.model.Events {
		process := b.process[b.heardBy[i]]
		k := hears{e.Lane, process}
		ofObject[k] = append(ofObject[k], i)
		ofAny[process] = append(ofAny[process], i)
	}
	// until returns the events that came after one time and until another.
	until := func(events []int, after, to float64) []int {
		from := sort.Search(len(events), func(i int) bool { return b.model.Events[events[i]].Told > after })
		end := sort.Search(len(events), func(i int) bool { return b.model.Events[events[i]].Told > to })
		return events[from:max(from, end)]
	}
	lists := map[int][]int{} // marks, sorted by End
	for _, n := range b.news {
		if m := b.model.Marks[n.watch.mark]; m.Verb == "list" {
			process := b.process[n.watch.mark]
			lists[process] = append(lists[process], n.watch.mark)
		}
	}
	last := map[hears]int{}  // the last request for an object
	wrote := map[hears]int{} // the last write to it that succeeded
	latest := map[int]int{}  // its last write of all
	for i := range b.model.Marks {
		m := &b.model.Marks[i]
		process := b.process[i]
		k := hears{m.Lane, process}
		if b.model.Lanes[m.Lane].Name == "" {
			continue
		}
		if isWriteVerb(m.Verb) {
			after := -1.0
			if w, ok := wrote[k]; ok {
				after = b.model.Marks[w].Start
			}
			before := -1.0
			if w, ok := latest[process]; ok {
				before = b.model.Marks[w].Start
			}
			m.Cause = &Cause{Rule: Unknown, Mark: -1}
			previous, hasPrevious := last[k]
			object := until(ofObject[k], after, m.Start)
			of := lists[process]
			list := sort.Search(len(of), func(i int) bool { return b.model.Marks[of[i]].End > m.Start }) - 1
			switch {
			case hasPrevious && b.model.Marks[previous].failed() && b.model.Marks[previous].End <= m.Start && len(until(ofObject[k], b.model.Marks[previous].End, m.Start)) == 0:
				m.Cause.Rule, m.Cause.Mark = Retry, previous
			case len(object) > 0:
				m.Cause.Rule, m.Cause.Events = OfObject, object[len(object)-1:]
			case list >= 0 && b.model.Marks[of[list]].End > before && len(until(ofAny[process], b.model.Marks[of[list]].End, m.Start)) == 0:
				m.Cause.Rule, m.Cause.Mark = FirstList, of[list]
			default:
				b.candidates(m.Cause, until(ofAny[process], before, m.Start))
			}
			latest[process] = i
			if m.Outcome == Wrote {
				wrote[k] = i
			}
		}
		last[k] = i
	}
}

// failed says whether a program has a reason to try again.
func (m Mark) failed() bool {
	return m.Outcome == Conflict || m.Outcome == Refused || m.Outcome == Lost || m.Outcome == GaveUp
}

// candidates enters the last event about each object among these, the newest first.
func (b *builder) candidates(c *Cause, events []int) {
	seen := map[int]bool{}
	for i := len(events) - 1; i >= 0; i-- {
		lane := b.model.Events[events[i]].Lane
		if seen[lane] {
			continue
		}
		seen[lane] = true
		if c.Rule = OfAnything; len(c.Events) == mostEvents {
			c.More++
			continue
		}
		c.Events = append(c.Events, events[i])
	}
}

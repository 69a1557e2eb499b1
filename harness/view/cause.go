package view

import (
	"sort"
)

// causes infers why each write was sent, from what its program had been told before. See [Rule].
func (b *builder) causes() {
	type key struct{ lane, program int }
	ofObject := map[key][]int{}  // events, sorted by Told
	ofProgram := map[int][]int{} // likewise
	for i, e := range b.model.Events {
		k := key{e.Lane, e.Program}
		ofObject[k] = append(ofObject[k], i)
		ofProgram[e.Program] = append(ofProgram[e.Program], i)
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
			lists[n.watch.program] = append(lists[n.watch.program], n.watch.mark)
		}
	}
	last := map[key]int{}  // the last request for an object
	wrote := map[key]int{} // the last write to it that succeeded
	any := map[int]int{}   // the program's last write
	for i := range b.model.Marks {
		m := &b.model.Marks[i]
		k := key{m.Lane, m.Program}
		if b.model.Lanes[m.Lane].Name == "" {
			continue
		}
		if isWriteVerb(m.Verb) {
			after := -1.0
			if w, ok := wrote[k]; ok {
				after = b.model.Marks[w].Start
			}
			before := -1.0
			if w, ok := any[m.Program]; ok {
				before = b.model.Marks[w].Start
			}
			m.Cause = &Cause{Rule: Unknown, Mark: -1}
			previous, hasPrevious := last[k]
			object := until(ofObject[k], after, m.Start)
			of := lists[m.Program]
			list := sort.Search(len(of), func(i int) bool { return b.model.Marks[of[i]].End > m.Start }) - 1
			switch {
			case hasPrevious && b.model.Marks[previous].failed() && b.model.Marks[previous].End <= m.Start && len(until(ofObject[k], b.model.Marks[previous].End, m.Start)) == 0:
				m.Cause.Rule, m.Cause.Mark = Retry, previous
			case len(object) > 0:
				m.Cause.Rule, m.Cause.Events = OfObject, object[len(object)-1:]
			case list >= 0 && b.model.Marks[of[list]].End > before && len(until(ofProgram[m.Program], b.model.Marks[of[list]].End, m.Start)) == 0:
				m.Cause.Rule, m.Cause.Mark = FirstList, of[list]
			default:
				b.candidates(m.Cause, until(ofProgram[m.Program], before, m.Start))
			}
			any[m.Program] = i
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

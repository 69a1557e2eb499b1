package view

import (
	"maps"
	"regexp"
	"sort"
	"strings"
)

// Compare aligns the models of two runs of the same steps: each step that both have begins at the same time in both, and for the run that
// got to its end sooner, time stands still until then. It marks the writes that only one of the runs has in a step, and in which they are
// about the same kind of object, by the same program, with the same outcome; of Leases and Events, nothing is marked. It changes both models.
func Compare(a, b *Model) {
	common := 0
	for common < min(len(a.Steps), len(b.Steps)) && a.Steps[common].Name == b.Steps[common].Name {
		common++
	}
	if common == 0 {
		markDifferences(a.Marks, b.Marks, a, b)
	}
	for i := range common {
		markDifferences(a.ofStep(i), b.ofStep(i), a, b)
	}
	align(a, b, common)
}

// ofStep returns the marks of a step; those of the first include what was before.
func (m *Model) ofStep(step int) []Mark {
	from, to := 0, len(m.Marks)
	first := func(at float64) int {
		return sort.Search(len(m.Marks), func(i int) bool { return m.Marks[i].Start >= at })
	}
	if step > 0 {
		from = first(m.Steps[step].At)
	}
	if step+1 < len(m.Steps) {
		to = first(m.Steps[step+1].At)
	}
	return m.Marks[from:max(from, to)]
}

// sameWrite identifies writes that are the same in two runs.
type sameWrite struct {
	verb, what, object string
	outcome            Outcome
}

// markDifferences marks the last of the writes of which one of the models has more.
func markDifferences(a, b []Mark, of, other *Model) {
	counts := map[sameWrite]int{}
	for _, m := range a {
		counts[of.sameWrite(m)]++
	}
	for _, m := range b {
		counts[other.sameWrite(m)]--
	}
	surplus := maps.Clone(counts)
	for i := len(a) - 1; i >= 0; i-- {
		if k := of.sameWrite(a[i]); k.verb != "" && surplus[k] > 0 {
			a[i].Differs = true
			surplus[k]--
		}
	}
	for i := len(b) - 1; i >= 0; i-- {
		if k := other.sameWrite(b[i]); k.verb != "" && surplus[k] < 0 {
			b[i].Differs = true
			surplus[k]++
		}
	}
}

// uuid is a generated identifier, as some controllers have in the names of objects.
var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// sameWrite returns what identifies a write. It has no verb for a request that is not compared.
func (m *Model) sameWrite(mark Mark) sameWrite {
	lane := m.Lanes[mark.Lane]
	if !isWriteVerb(mark.Verb) || lane.Resource == leases || lane.Resource == "events" || lane.Resource == "events.events.k8s.io" || lane.Resource == "" {
		return sameWrite{}
	}
	object := uuid.ReplaceAllString(lane.Name, "*")
	if match := generated.FindStringSubmatch(object); match != nil {
		object = strings.TrimSuffix(match[1], "-") + "-*"
	}
	if mark.Verb == "create" && mark.What == lane.Resource && mark.Outcome != Wrote {
		object = "" // the name of what was not created may be unknown
	}
	return sameWrite{mark.Verb, mark.What, object, mark.Outcome}
}

// align changes the times of two models so that each of the first steps begins at the same time in both.
func align(a, b *Model, common int) {
	if common == 0 {
		end := max(a.End, b.End)
		a.End, b.End = end, end
		return
	}
	begins := make([]float64, common)
	for i := range begins {
		x, y := a.Steps[0].At, b.Steps[0].At
		if i > 0 {
			x, y = a.Steps[i].At-a.Steps[i-1].At+begins[i-1], b.Steps[i].At-b.Steps[i-1].At+begins[i-1]
		}
		begins[i] = max(x, y)
	}
	for _, m := range []*Model{a, b} {
		steps := make([]float64, common)
		for i := range steps {
			steps[i] = m.Steps[i].At
		}
		m.retime(func(t float64) float64 {
			step := max(0, sort.Search(len(steps), func(i int) bool { return steps[i] > t })-1)
			return begins[step] + t - steps[step]
		})
		for i, begin := range begins { // of steps at the same time, that is not clear
			m.Steps[i].At = begin
		}
	}
	end := max(a.End, b.End)
	a.End, b.End = end, end
}

// retime changes all times by a function, which keeps their order.
func (m *Model) retime(at func(float64) float64) {
	change := func(times ...*float64) {
		for _, t := range times {
			*t = at(*t)
		}
	}
	change(&m.End)
	for i := range m.Lanes {
		for k := range m.Lanes[i].Versions {
			v := &m.Lanes[i].Versions[k]
			change(&v.From, &v.To)
		}
		for _, t := range m.Lanes[i].Told {
			for k := range t.Spans {
				change(&t.Spans[k].From, &t.Spans[k].To)
			}
		}
	}
	for i := range m.Marks {
		change(&m.Marks[i].Start, &m.Marks[i].End)
	}
	for i := range m.Events {
		change(&m.Events[i].Came, &m.Events[i].Told)
	}
	for i := range m.Steps {
		change(&m.Steps[i].At)
	}
	for _, p := range m.Processes {
		for k := range p.States {
			change(&p.States[k].From, &p.States[k].To)
		}
		for k := range p.Leads {
			change(&p.Leads[k].From, &p.Leads[k].To)
		}
	}
	for _, s := range m.Series {
		for k := range s.Points {
			change(&s.Points[k][0])
		}
	}
}

package torture

import (
	"maps"
	"regexp"
	"slices"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/torture/report"
)

// Summary returns what is to be printed of a report.
func (r *Report) Summary(d Details) *report.Summary {
	s := &report.Summary{
		Scenario: d.Scenario, Kinds: r.kinds(), Plans: len(r.Outcomes), Failed: len(r.Failures()), NotMet: len(r.NotMet()), NotRun: len(r.NotRun()),
		Duration: r.Duration, Notes: r.notes(), Interrupted: d.Interrupted, Possible: r.possible, Runs: r.Runs,
	}
	if r.world.Baseline != nil {
		s.Writes = r.world.Coverage(r.met())
	}
	if r.Baseline != nil {
		s.Baseline = outsideOfRun(r.Baseline.History)
	}
	if d.Err != nil {
		s.Error = d.Err.Error()
	}
	if d.EndedEarly() {
		s.Planned, s.Resume = d.Planned, d.Resume
	}
	if d.Keep != nil && len(d.Keep.names) > 0 {
		s.Dir = d.Keep.Dir()
	}
	groups := r.Groups()
	for _, confirmed := range []bool{true, false} {
		for _, g := range groups {
			if g.Confirmed() == confirmed {
				f := g.summary(d)
				f.NotCompared = d.EndedEarly() && f.Confirmed && f.Controls == 0
				s.Failures = append(s.Failures, f)
			}
		}
	}
	s.CouldNotRun = d.example(r.NotRun())
	s.Undisturbed = d.example(slices.DeleteFunc(r.NotMet(), func(o Outcome) bool { return o.Verdict == Passed }))
	return s
}

// met returns the plans that were run with their faults.
func (r *Report) met() (plans []Plan) {
	for _, o := range r.Outcomes {
		if !o.saysNothing() {
			plans = append(plans, o.Plan)
		}
	}
	return plans
}

func (g Group) summary(d Details) report.Failure {
	first := g.Failures[0]
	f := report.Failure{
		Verdict: string(g.Verdict), Cause: g.Cause, Message: g.Message, Confirmed: g.Confirmed(), Kinds: g.Kinds, Seen: g.Seen, Runs: g.Runs, Alone: g.Alone, Controls: g.Controls,
		ComesAnyway: g.comesAnyway(), Behind: staleWrites(first), Run: outsideOfRun(first.History), Failed: first.FailedAt,
	}
	for _, o := range g.Failures {
		f.Plans = append(f.Plans, d.plan(o))
	}
	return f
}

// runNamespace is the name of a run's namespace.
var runNamespace = regexp.MustCompile(`^torture-[0-9]+$`)

// outsideOfRun returns a recording without the namespace that the run had of its own: its name says nothing, and another run has another.
func outsideOfRun(h *history.History) *history.History {
	if h == nil {
		return nil
	}
	unless := func(name string) string { return runNamespace.ReplaceAllString(name, "") }
	records := h.Records()
	for i, one := range records {
		if one.Request != nil {
			q := *one.Request
			q.Namespace = unless(q.Namespace)
			records[i].Request = &q
		}
		for _, e := range []**history.Event{&records[i].Event, &records[i].Seen} {
			if *e != nil {
				event := **e
				event.Namespace = unless(event.Namespace)
				*e = &event
			}
		}
	}
	return history.Of(records...)
}

// plan says of an outcome where to look.
func (d Details) plan(o Outcome) report.Plan {
	p := report.Plan{Kind: o.Plan.Kind, Faults: []string{}, Verdict: string(o.Verdict), Cause: o.Cause, Message: o.Message, Requests: excerpt(o), Files: d.Keep.Files(o)}
	for _, fault := range o.Plan.Faults {
		p.Faults = append(p.Faults, fault.String())
	}
	if d.Replay != nil {
		p.Replay = d.Replay(o.Plan)
	}
	if d.View != nil && p.Files != "" {
		p.View = d.View(p.Files + ".jsonl")
	}
	return p
}

func (d Details) example(outcomes []Outcome) *report.Example {
	if len(outcomes) == 0 {
		return nil
	}
	return &report.Example{Plans: len(outcomes), First: d.plan(outcomes[0])}
}

// kinds says how the plans of each kind went.
func (r *Report) kinds() (kinds []report.Kind) {
	all, failed := map[string]*report.Kind{}, map[string]map[Verdict]int{}
	for _, o := range r.Outcomes {
		name := o.Plan.Kind
		if o.Plan.IsDrawn() {
			name = "seeds"
		}
		k := all[name]
		if k == nil {
			k = &report.Kind{Name: name}
			all[name], failed[name] = k, map[Verdict]int{}
		}
		k.Plans++
		switch {
		case o.Verdict == NotRun:
			k.NotRun++
		case o.NotMet:
			k.NotMet++
		case o.Verdict == Passed:
			k.Passed++
		default:
			failed[name][o.Verdict]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		k := all[name]
		for _, v := range Verdicts {
			if n := failed[name][v]; n > 0 {
				k.Failed = append(k.Failed, report.Count{Verdict: string(v), Plans: n})
			}
		}
		kinds = append(kinds, *k)
	}
	return kinds
}

// notes returns what was unusual and may be right, each once.
func (r *Report) notes() (notes []report.Note) {
	for _, o := range r.Outcomes {
		for _, text := range o.Notes {
			at := slices.IndexFunc(notes, func(n report.Note) bool { return n.Text == text })
			if at < 0 {
				at = len(notes)
				notes = append(notes, report.Note{Text: text})
			}
			notes[at].Plans++
		}
	}
	return notes
}

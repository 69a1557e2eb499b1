package torture

import (
	"cmp"
	"slices"
	"strings"

	"example.com/controllers/harness/history"
)

// Group is failures with the same verdict and cause.
type Group struct {
	Verdict  Verdict
	Cause    string
	Message  string   // of the first failure
	Kinds    []string // of the plans
	Failures []Outcome
	// Seen and Runs are how often runs of the first failure's plan had this verdict, and how many there were. The first failure
	// is one whose plan has failed again, if there is one.
	Seen, Runs int
	// Alone and Controls are how many runs without faults failed in the same way, and how many there were.
	Alone, Controls int
}

// maxRepeated is how many plans of a group are repeated at most to see whether one fails again.
const maxRepeated = 3

// toRepeat returns the plans of a group that can be repeated, in the order of their failures. The first failure may have come by
// chance, and another one beside it not.
func (g Group) toRepeat() (plans []Plan) {
	keys := map[string]bool{}
	for _, failure := range g.Failures {
		if key := failure.Plan.Key(); !keys[key] && len(plans) < maxRepeated {
			keys[key] = true
			plans = append(plans, failure.Plan)
		}
	}
	return plans
}

// Confirmed reports whether the controller failed in this way in two runs of a plan. Other plans that failed, too, do not
// confirm it: in a thousand of them, the machine may hiccup twice. Nor do runs that failed side by side: a machine that had no
// time for one of them had none for the others either.
//
// It is not confirmed either if it comes about as often without the fault.
func (g Group) Confirmed() bool {
	if g.comesAnyway() || g.isTooRare() {
		return false
	}
	if g.Seen > 1 {
		return true
	}
	for i, a := range g.Failures {
		if slices.ContainsFunc(g.Failures[i+1:], func(b Outcome) bool { return a.Plan.Key() == b.Plan.Key() && !a.besides(b) }) {
			return true
		}
	}
	return false
}

// besides reports whether the failing steps of two runs may have overlapped in time.
func (o Outcome) besides(other Outcome) bool {
	return o.FailedAt.Sub(other.FailedAt).Abs() < max(o.Duration, other.Duration)
}

// counts reports whether an outcome is a failure of the controller. One whose fault did not occur, or that could not be
// run, says nothing about it.
func (o Outcome) counts() bool { return o.Verdict != Passed && !o.saysNothing() }

// saysNothing reports whether an outcome says nothing about the controller: the plan was not run, or without its fault.
func (o Outcome) saysNothing() bool { return o.Verdict == NotRun || o.NotMet }

// retried notes a further run of a plan that has failed, if it says anything.
func (r *Report) retried(again Outcome) {
	if again.saysNothing() {
		return
	}
	if r.Retried == nil {
		r.Retried = map[string][]Outcome{}
	}
	key := again.Plan.Key()
	r.Retried[key] = append(r.Retried[key], again.forReport())
}

// forReport returns what a [Report] keeps of an outcome.
func (o Outcome) forReport() Outcome {
	if o.Verdict == Passed {
		o.History, o.Log, o.seen = &history.History{}, "", nil
	}
	return o
}

// failure is an outcome that counts, and in how many runs of its plan the controller failed with the same verdict.
type failure struct {
	Outcome
	seen, runs int
}

// failures returns the failures of the controller: those of the plans and, where a plan that was repeated failed with another
// verdict in at least two repetitions, the first of these.
func (r *Report) failures() (all []failure) {
	isKnown := map[string]bool{} // plans, the repetitions of which are among all
	for _, o := range r.Outcomes {
		if !o.counts() {
			continue
		}
		key := o.Plan.Key()
		runs := append([]Outcome{o}, r.Retried[key]...)
		verdicts := map[Verdict]int{}
		for _, one := range runs {
			verdicts[one.Verdict]++
		}
		all = append(all, failure{o, verdicts[o.Verdict], len(runs)})
		delete(verdicts, o.Verdict)
		for _, one := range runs {
			if often := verdicts[one.Verdict]; one.counts() && often > 1 && !isKnown[key] {
				all = append(all, failure{one, often, len(runs)})
			}
			delete(verdicts, one.Verdict)
		}
		isKnown[key] = true
	}
	return all
}

// artificial is higher for a plan that a maintainer may take for something that does not happen: an answer that the API server would not
// give at this request.
func artificial(p Plan) int {
	switch p.Kind {
	case "answered 409", "answered 403", "answered 412":
		return 2
	case "answered 429", "answered 500", "answered 503", "request lost", "reply lost", "connection refused":
		return 0
	}
	return 1
}

// Groups returns the failures of the controller by cause, the largest group first.
func (r *Report) Groups() []Group {
	groups := map[[2]string]*Group{}
	var all []*Group
	failures := r.failures()
	slices.SortStableFunc(failures, func(a, b failure) int { // the most convincing first
		return cmp.Or(cmp.Compare(min(b.seen, 2), min(a.seen, 2)), cmp.Compare(artificial(a.Plan), artificial(b.Plan)), cmp.Compare(b.seen, a.seen))
	})
	for _, f := range failures {
		o := f.Outcome
		key := [2]string{string(o.Verdict), o.Cause}
		g := groups[key]
		if g == nil {
			g = &Group{Verdict: o.Verdict, Cause: o.Cause, Message: o.Message, Seen: f.seen, Runs: f.runs}
			groups[key], all = g, append(all, g)
		}
		g.Failures = append(g.Failures, o)
		if !slices.Contains(g.Kinds, o.Plan.Kind) {
			g.Kinds = append(g.Kinds, o.Plan.Kind)
		}
	}
	slices.SortStableFunc(all, func(a, b *Group) int {
		return cmp.Or(len(b.Failures)-len(a.Failures), slices.Index(Verdicts, a.Verdict)-slices.Index(Verdicts, b.Verdict), strings.Compare(a.Cause, b.Cause))
	})
	undisturbed := r.undisturbed()
	var sorted []Group
	for _, g := range all {
		slices.Sort(g.Kinds)
		for _, o := range undisturbed {
			if o.Verdict == g.Verdict && o.Cause == g.Cause {
				g.Alone++
			}
		}
		if len(r.Controls) > 0 || g.Alone > 0 {
			g.Controls = len(undisturbed)
		}
		sorted = append(sorted, *g)
	}
	return sorted
}

// Failures returns the failures of the controller that came more than once, by plan or in a repeated run.
func (r *Report) Failures() []Outcome {
	var failures []Outcome
	for _, g := range r.Groups() {
		if g.Confirmed() {
			failures = append(failures, g.Failures...)
		}
	}
	return failures
}

// First returns the confirmed failure whose plan comes first in the order of the plans. With [Options.FirstOnly], all plans
// before that one were run.
func (r *Report) First() (first Outcome, found bool) {
	failures := r.Failures()
	for _, plan := range r.Planned {
		for _, failure := range failures {
			if failure.Plan.Key() == plan.Key() {
				return failure, true
			}
		}
	}
	return Outcome{}, false
}

// pending returns the plans that come before the first confirmed failure and were not run; none if there is no such failure.
func (r *Report) pending() (pending []Plan) {
	first, found := r.First()
	if !found {
		return nil
	}
	done := map[string]bool{}
	for _, o := range r.Outcomes {
		done[o.Plan.Key()] = true
	}
	for _, plan := range r.Planned {
		key := plan.Key()
		if key == first.Plan.Key() {
			break
		}
		if !done[key] {
			pending = append(pending, plan)
		}
	}
	return pending
}

// NotRun returns the outcomes of the plans that could not be run.
func (r *Report) NotRun() []Outcome {
	return slices.DeleteFunc(slices.Clone(r.Outcomes), func(o Outcome) bool { return o.Verdict != NotRun })
}

// NotMet returns the outcomes of the plans that were run without their faults. See [Outcome.NotMet].
func (r *Report) NotMet() []Outcome {
	return slices.DeleteFunc(slices.Clone(r.Outcomes), func(o Outcome) bool { return o.Verdict == NotRun || !o.NotMet })
}

// Judges reports whether any plan says something about the controller: was run, with its faults.
func (r *Report) Judges() bool { return len(r.NotRun())+len(r.NotMet()) < len(r.Outcomes) }

// Details are what a report is written with. All of them may be missing.
type Details struct {
	Scenario string // its file
	// Replay returns the command that replays a plan.
	Replay func(Plan) string
	// View returns the command that draws a recording; nil if there is none.
	View func(path string) string
	// Keep has the files of the plans that failed.
	Keep *Keep
	// Interrupted says that Ctrl-C has ended the run, and Err is the error of torture's own that has; nil if none has.
	Interrupted bool
	Err         error
	// Of a run that ended early, Planned is how many plans there were, with those that have not been run, and Resume is
	// the command that runs these; "" if there is none.
	Planned int
	Resume  string
}

// EndedEarly reports whether the run did not come to its end.
func (d Details) EndedEarly() bool { return d.Interrupted || d.Err != nil }

package torture

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"example.com/controllers/harness/history"
)

// A failure is blamed on a fault only if the controller does not fail in the same way without one, beside as many other runs. So when
// everything else is done, runs without faults and further runs of the plans that failed take turns. The baseline cannot tell: it is a few
// runs, which had the machine to themselves.

const (
	// mostCompared is how many causes are compared at most.
	mostCompared = 8
	// compareRuns is how many more runs there are of a plan that failed, at first and then.
	compareRuns, moreRuns = 3, 5
	// leastControls and mostControls are how many runs there are without faults, at first and in all.
	leastControls, mostControls = 8, 24
	// significant is how probable it may be that a plan fails so often by chance, if its fault has nothing to do with it.
	significant = 0.05
)

// control runs the plans of confirmed failures, and as many without faults, as many at a time as before. Those that a few runs do not
// tell from what happens without their faults are run more often, unless the budget has ended.
func (s *subject) control(ctx context.Context, o Options, report *Report) error {
	compared := slices.DeleteFunc(report.Groups(), func(g Group) bool { return !g.Confirmed() })
	compared = compared[:min(len(compared), mostCompared)]
	controls := leastControls
	more := compareRuns
	budget := o.budget
	o.budget, o.Alone = nil, true
	for round := 1; len(compared) > 0; round++ {
		var plans []Plan
		for _, g := range compared {
			plans = append(plans, slices.Repeat([]Plan{g.Failures[0].Plan}, more)...)
		}
		fmt.Fprintf(o.Progress, "torture: %s: comparing %d runs without faults with %s of each plan\n", count(len(compared), "failure", "failures"), controls, count(more, "run more", "more"))
		if err := s.compare(ctx, o, report, append(plans, slices.Repeat([]Plan{NoFault}, controls)...)); err != nil {
			return err
		}
		undecided := slices.DeleteFunc(report.Groups(), func(g Group) bool {
			return g.isDecided() || !slices.ContainsFunc(compared, func(was Group) bool { return was.Verdict == g.Verdict && was.Cause == g.Cause })
		})
		if round == 2 || budget.left() <= 0 || s.scenario.isCluster() { // there, a run takes a minute
			break
		}
		compared, more = undecided, moreRuns
		controls = max(leastControls, min(mostControls, 2*o.Runs())-leastControls)
	}
	return nil
}

// compare runs plans, some of them without faults, in any order.
func (s *subject) compare(ctx context.Context, o Options, report *Report, plans []Plan) error {
	random := rand.New(rand.NewPCG(1, 0))
	random.Shuffle(len(plans), func(i, j int) { plans[i], plans[j] = plans[j], plans[i] })
	results := make(chan Outcome, len(plans))
	err := s.executeAll(ctx, o, plans, func(outcome Outcome) error {
		results <- outcome
		return nil
	})
	close(results)
	for outcome := range results {
		if outcome.Plan.Key() == NoFault.Key() {
			report.Controls = append(report.Controls, outcome)
		} else {
			report.retried(outcome)
		}
	}
	report.judgeAgain(s.scenario)
	return err
}

// judgeAgain judges the failures again that are about how much the controller did, now that more runs have shown how much it does without
// faults. A run whose fault did not come is one of those.
func (r *Report) judgeAgain(s *Scenario) {
	b := r.Baseline.clone()
	for _, o := range r.undisturbed() {
		if o.seen != nil {
			b.add(o, o.seen)
		}
	}
	again := func(o *Outcome) {
		isOfAmount := o.Verdict == TooMuch || o.Verdict == TooLittle || o.Verdict == NoRest
		if !isOfAmount || o.seen == nil || o.saysNothing() {
			return
		}
		failure, notes := s.judgeAgainst(b, o.seen, o.namespace)
		if failure != nil {
			return
		}
		notes = append(notes, "at first, this seemed to be a failure, until more runs without faults did the same: "+string(o.Verdict)+": "+o.Message)
		*o = Outcome{Plan: o.Plan, Notes: notes, History: &history.History{}, FailedAt: o.FailedAt, Duration: o.Duration}
	}
	for i := range r.Outcomes {
		again(&r.Outcomes[i])
	}
	for _, of := range r.Retried {
		for i := range of {
			again(&of[i])
		}
	}
}

// undisturbed returns the outcomes of the runs without faults beside the others: the controls, and those plans whose faults did not come.
func (r *Report) undisturbed() []Outcome {
	all := slices.Concat(r.Controls, r.NotMet())
	return slices.DeleteFunc(all, func(o Outcome) bool { return o.Verdict == NotRun })
}

// isDecided reports whether the failure came each time with the fault and never without it, or was ruled out, so that more runs would
// hardly change the verdict.
func (g Group) isDecided() bool {
	return g.Controls > 0 && (!g.Confirmed() || g.Alone == 0 && g.Seen == g.Runs)
}

// comesAnyway reports whether a failure is about as frequent without the fault as with it.
func (g Group) comesAnyway() bool {
	if g.Alone == 0 {
		return false
	}
	// The first run is why we look at this plan, so it says nothing about how often it fails.
	return chance(g.Seen-1, g.Runs-1, g.Alone, g.Controls) > significant
}

// isTooRare reports whether a failure came again so rarely that the fault may have nothing to do with it.
func (g Group) isTooRare() bool {
	return g.Controls > 0 && g.Runs > compareRuns+moreRuns && g.Seen <= 2
}

// chance returns how probable it is that of k+c failures in n+m runs, k or more are among the n, if all runs are alike: Fisher's exact test.
func chance(k, n, c, m int) (p float64) {
	choose := func(n, k int) float64 {
		if k < 0 || k > n {
			return math.Inf(-1)
		}
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		d, _ := math.Lgamma(float64(n - k + 1))
		return a - b - d
	}
	failures := k + c
	for i := k; i <= min(n, failures); i++ {
		p += math.Exp(choose(n, i) + choose(m, failures-i) - choose(n+m, failures))
	}
	return min(p, 1)
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// RunKept is like [Lab.Run]. It stores the outcomes in k and does not run plans again whose outcomes are there already;
// the report covers both. planned is how many plans there are altogether, or 0 if it ended before that was known.
//
// A plan that could not be run earlier is run now. A failure that was seen only once earlier is repeated.
func (l *Lab) RunKept(ctx context.Context, o Options, k *Keep) (report *Report, planned int, err error) {
	var earlier []Outcome
	done := map[string]int{}
	for _, outcome := range k.earlier {
		if outcome.Verdict != NotRun {
			earlier = append(earlier, outcome)
			done[outcome.Plan.Key()]++
		}
	}
	if len(earlier) > 0 && o.Progress != nil {
		fmt.Fprintf(o.Progress, "torture: %s been run already; their outcomes are in %s\n", count(len(earlier), "plan has", "plans have"), k.dir)
	}
	next := o
	next.Skip = maps.Clone(o.Skip)
	if next.Skip == nil {
		next.Skip = map[string]bool{}
	}
	for key := range done {
		next.Skip[key] = true
	}
	if len(o.Faults) > 0 && len(o.Plans) == 0 { // the same plan, several times
		plan := o.plans(nil)[0]
		next.Replays = max(1, o.Replays) - done[plan.Key()]
		if next.Replays > 0 {
			delete(next.Skip, plan.Key())
		}
	}
	next.Finished = func(outcome Outcome) {
		before := k.err
		k.Add(outcome)
		if k.err != nil && before == nil && o.Progress != nil {
			fmt.Fprintf(o.Progress, "torture: %v; the run goes on, but nothing more is kept\n", k.err)
		}
		if o.Finished != nil {
			o.Finished(outcome)
		}
	}
	report, err = l.Run(ctx, next)
	if unfit := (*UnfitError)(nil); errors.As(err, &unfit) {
		k.addUnfit(unfit)
	}
	if report == nil || report.Baseline == nil {
		return report, 0, err
	}
	planned = len(earlier)
	for _, plan := range next.plans(report.Baseline) {
		if !next.Skip[plan.Key()] {
			planned++
		}
	}
	report.Outcomes = append(earlier, report.Outcomes...)
	if len(earlier) > 0 {
		report.Runs = 0 // how many the earlier plans took is not kept
	}
	if err == nil && !o.FirstOnly && !o.Unconfirmed {
		err = confirmEarlier(o, report, len(earlier), func(o Options) (*Report, error) { return l.Run(ctx, o) })
	}
	k.addRepetitions(report)
	return report, planned, err
}

// confirmEarlier repeats plans of the failures that were seen only once, as far as they are among the first outcomes: Run
// repeats only its own. run is [Lab.Run].
func confirmEarlier(o Options, report *Report, earlier int, run func(Options) (*Report, error)) error {
	isEarlier := map[string]bool{}
	for _, outcome := range report.Outcomes[:earlier] {
		isEarlier[outcome.Plan.Key()] = true
	}
	var repeat []Plan
	for _, g := range report.Groups() {
		if g.Confirmed() {
			continue
		}
		for _, plan := range g.toRepeat() {
			if isEarlier[plan.Key()] {
				repeat = append(repeat, slices.Repeat([]Plan{plan}, maxRetries)...)
			}
		}
	}
	if len(repeat) == 0 {
		return nil
	}
	begin := time.Now()
	o.Plans, o.Baseline, o.Skip, o.Finished = repeat, report.Baseline, nil, nil
	o.Elsewhere, o.Alone = nil, true // repetitions are always here
	again, err := run(o)
	if again != nil {
		for _, outcome := range again.Outcomes {
			report.retried(outcome)
		}
		for _, outcomes := range again.Retried {
			for _, outcome := range outcomes {
				report.retried(outcome)
			}
		}
	}
	report.Duration += time.Since(begin)
	return err
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture/plan"
)

// maxBaselineRuns is how many runs without faults there are at most.
const maxBaselineRuns = 10

// maxUnfitRuns is how many there are at most of a controller that does something else each time.
const maxUnfitRuns = 4

// Learn runs the scenario without faults until two runs in a row bring nothing new, and returns what they came to. The
// result can be used for every controller that should do the same.
func (l *Lab) Learn(ctx context.Context, o Options) (*Baseline, error) {
	o.Progress = inTurn(o.Progress)
	if o.Reference == nil {
		o.Reference = o.Commands
	}
	s, err := l.prepare(ctx, o, o.Reference)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Progress, "torture: baseline: runs without faults, until two in a row bring nothing new")
	b := &Baseline{}
	begin := time.Now()
	defer every(progressInterval, func() {
		fmt.Fprintf(o.Progress, "torture: baseline: still running, after %s\n", time.Since(begin).Round(time.Second))
	})()
	var unfit *UnfitError // it takes more than one run to know all that differs
	for settled := 0; settled < 2 && b.Runs < maxBaselineRuns && (unfit == nil || b.Runs < maxUnfitRuns); {
		outcomes := make([]Outcome, min(2, o.Runs()))
		seen := make([]*observation, len(outcomes))
		var group errgroup.Group
		for i := range outcomes {
			group.Go(func() (err error) {
				got, err := s.execute(ctx, nil, job{{Plan: NoFault}})
				outcomes[i], seen[i] = got.Outcome, got.seen
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		if wide := wideOf(outcomes); len(wide) > 0 && b.wide == nil {
			// These runs have seen each other. From now on, each program is shown its own run.
			fmt.Fprintf(o.Progress, "torture: baseline: told its namespace, and looks at all of them all the same, so it is shown its own only: %s\n", strings.Join(slices.Sorted(maps.Keys(wide)), ", "))
			b.wide, s.wide = wide, wide
			continue
		}
		for i, outcome := range outcomes {
			if outcome.Verdict == NotRun {
				return nil, errors.New(outcome.Message)
			}
			if outcome.Verdict != Passed {
				return nil, &UnfitError{Verdict: outcome.Verdict, message: fmt.Sprintf("the controller fails without faults: %s: %s\n%s\n%s", outcome.Verdict, outcome.Message, lastRequests(outcome), tail(outcome.Log)), run: &outcome}
			}
			if settled++; b.add(outcome, seen[i]) {
				settled = 0
			}
		}
		unfit = b.unfit(o.Scenario.MayDiffer.Writes)
	}
	if unfit != nil {
		return nil, unfit
	}
	if b.Runs >= maxBaselineRuns {
		fmt.Fprintf(o.Progress, "torture: baseline: the last of %d runs still brought something new; what is right may differ by more\n", b.Runs)
	}
	if b.lease+apiproxy.DefaultFreeze-plan.UsualLease >= maxHeldUp {
		fmt.Fprintf(o.Progress, "torture: a Lease lasts %s, too long for plans in which it is lost; let the scenario start the controller with a shorter one\n", b.lease)
	}
	fmt.Fprintf(o.Progress, "torture: baseline: %d runs; writes in each: %s\n", b.Runs, b.writes())
	return b, nil
}

// progressInterval is how long there is nothing to read at most.
const progressInterval = 30 * time.Second

// every calls f again and again, until stop is called.
func every(interval time.Duration, f func()) (stop func()) {
	ticker := time.NewTicker(interval)
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for {
			select {
			case <-ticker.C:
				f()
			case <-done:
				return
			}
		}
	})
	return func() { ticker.Stop(); close(done); ticking.Wait() }
}

// lastRequests returns what the controller asked for last, as the lines of a table.
func lastRequests(o Outcome) string {
	lines := excerpt(o)
	if len(lines) == 0 {
		return "it has sent no request"
	}
	return "some of its requests:\n  " + strings.Join(lines, "\n  ")
}

// wideOf returns the programs that are wide in any of the runs.
func wideOf(outcomes []Outcome) map[string]bool {
	all := map[string]bool{}
	for _, o := range outcomes {
		maps.Copy(all, o.wide)
	}
	return all
}

// add adds a run without faults. news says whether it was unlike the runs before.
func (b *Baseline) add(outcome Outcome, o *observation) (news bool) {
	b.Runs++
	news = b.Expected.Add(o.effects)
	if o.steps != nil { // not of a run in which a fault was to come
		b.addSteps(o)
	}
	if b.Runs == 1 {
		b.end, b.History, b.watched, b.opened = o.end, outcome.History, o.watched, o.opened
	}
	for _, d := range oracle.Compare(b.end, o.end) {
		if !slices.ContainsFunc(b.differences, func(known oracle.Difference) bool { return known.Cause() == d.Cause() }) {
			b.differences, news = append(b.differences, d), true
		}
	}
	b.lease = max(b.lease, o.lease)
	b.requests, b.events = max(b.requests, o.rest.requests), max(b.events, o.rest.events)
	maps.DeleteFunc(b.watched, func(w watching, _ bool) bool { return !o.watched[w] })
	maps.DeleteFunc(b.opened, func(w watching, _ bool) bool { return !o.opened[w] })
	return news
}

// writes names the writes of the controller and how often each came.
func (b *Baseline) writes() string {
	var texts []string
	for _, what := range slices.Sorted(maps.Keys(b.Expected.Did)) {
		texts = append(texts, fmt.Sprintf("%s (%s)", what, b.Expected.Did[what]))
	}
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, ", ")
}

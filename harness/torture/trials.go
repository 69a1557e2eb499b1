package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"example.com/controllers/harness/history"
)

// executeAll runs plans, several at a time: three quarters of what the machine surely takes, or more while it has processor time
// to spare, unless we were told how many. finished is called for each of them, by several goroutines; its error ends all.
func (s *subject) executeAll(ctx context.Context, o Options, plans []Plan, finished func(Outcome) error) error {
	var queues [][]job
	runs := 0
	for _, queue := range s.queues(o, plans) {
		queues = append(queues, s.joinPlans(o, queue))
		runs += len(queues[len(queues)-1])
	}
	if runs < len(plans) {
		fmt.Fprintf(o.Progress, "torture: %d plans in %d runs, or in more if anything is unusual\n", len(plans), runs)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, queue := range queues {
		all, stop := newJobs(ctx, queue, o.budget.ended())
		defer stop()
		workers := o.Runs()
		always := workers // the others wait for processor time to spare
		if o.Parallel == 0 {
			always = max(1, workers*3/4)
			workers = max(workers, o.mostRuns())
		}
		if i > 0 {
			always = max(1, always/perControlPlane)
			workers = always
		}
		for n := range workers {
			group.Go(func() error {
				for {
					if n >= always {
						s.lab.stalls.awaitSpare(all.ended)
					}
					of, ok := all.next()
					if !ok {
						return nil
					}
					again, failed, err := s.executeJob(ctx, o.Baseline, of, o.Progress, finished)
					all.done(again, failed)
					if err != nil {
						return err
					}
				}
			})
		}
	}
	return group.Wait()
}

// executeJob runs a job, and calls finished for each plan of which it says something. It returns what is to be run because of it,
// and whether it has failed.
func (s *subject) executeJob(ctx context.Context, b *Baseline, of job, progress io.Writer, finished func(Outcome) error) (again []job, failed bool, err error) {
	result, err := s.execute(ctx, b, of)
	if err != nil {
		return nil, false, err
	}
	if !of.isJoint() {
		return nil, false, finished(result.Outcome)
	}
	passed, again := of.sortOut(result.Outcome, result.run)
	if why := result.run.unusual(result.Outcome); why != "" {
		fmt.Fprintf(progress, "torture: %s, unusual: %s; each is run alone, as far as it had come\n", of.plan().Kind, why)
	}
	for _, outcome := range passed {
		if err := finished(outcome); err != nil {
			return nil, false, err
		}
	}
	return again, result.Verdict != Passed && result.Verdict != NotRun, nil
}

// queues returns the plans that share a control plane, and those that run beside them, fewer at a time, as they kill a
// control plane. If only one run is asked for at a time, all plans are in one queue.
func (s *subject) queues(o Options, plans []Plan) [][]Plan {
	if o.Parallel == 1 {
		return [][]Plan{plans}
	}
	queues := make([][]Plan, 2)
	for _, plan := range plans {
		which := 0
		if s.needsExpendable(plan) {
			which = 1
		}
		queues[which] = append(queues[which], plan)
	}
	return queues
}

// needsExpendable reports whether a plan kills a control plane that other plans use.
func (s *subject) needsExpendable(plan Plan) bool { return plan.Crashes() && !s.scenario.isCluster() }

// execute runs a job on the control plane that it needs: the shared one, one that it may kill, or one of its own.
func (s *subject) execute(ctx context.Context, b *Baseline, of job) (got result, err error) {
	switch {
	case s.scenario.isCluster():
		p, err := s.lab.newControlPlane(ctx, cmp.Or(s.scenario.Nodes, 3))
		if ctx.Err() != nil {
			return got, context.Cause(ctx)
		}
		if err != nil {
			return result{Outcome: Outcome{Plan: of.plan(), Verdict: NotRun, Message: err.Error(), History: &history.History{}}, run: &run{}}, nil
		}
		p.clients.alone = true
		s.lab.makeCrashable(p)
		got, err = s.run(ctx, p, of, b)
		return got, errors.Join(err, p.restartErr(), p.cluster.Stop())
	case s.needsExpendable(of.plan()):
		err = s.lab.withExpendable(func(p *controlPlane) (err error) {
			got, err = s.run(ctx, p, of, b)
			return err
		})
		return got, err
	}
	return s.run(ctx, s.lab.shared, of, b)
}

// maxRetries is how often a failed plan is repeated to see whether it fails again.
const maxRetries = 3

// confirm repeats plans of each group of failures that was seen only once, until one fails again or they have been repeated
// often enough.
func (s *subject) confirm(ctx context.Context, o Options, report *Report) error {
	groups := slices.DeleteFunc(report.Groups(), func(g Group) bool { return g.Confirmed() })
	if len(groups) == 0 {
		return nil
	}
	fmt.Fprintf(o.Progress, "torture: %s: repeating the plan, up to %d times\n", count(len(groups), "cause that was seen once", "causes that were seen once"), maxRetries)
	var mu sync.Mutex
	left := len(groups)
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(max(1, o.Runs()/2)) // some kill the control plane
	for _, g := range groups {
		work.Go(func() error {
			for _, plan := range g.toRepeat() {
				repeated, confirmed, err := s.repeat(ctx, o, plan, g.Verdict)
				mu.Lock()
				for _, again := range repeated {
					report.retried(again)
				}
				mu.Unlock()
				if err != nil {
					return err
				}
				if confirmed {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			left--
			fmt.Fprintf(o.Progress, "torture: %s: %s: repeated, %d left\n", g.Verdict, g.Cause, left)
			return nil
		})
	}
	return work.Wait()
}

// repeat runs a plan again that has failed with this verdict, see [untilConfirmed].
func (s *subject) repeat(ctx context.Context, o Options, plan Plan, verdict Verdict) (outcomes []Outcome, confirmed bool, err error) {
	return untilConfirmed(verdict, func() (Outcome, error) {
		got, err := s.execute(ctx, o.Baseline, job{{Plan: plan}})
		return got.Outcome, err
	})
}

// untilConfirmed calls run, after a failure with this verdict, up to maxRetries times, not counting the runs that say nothing. confirmed
// says that it has failed twice in the same way: with this verdict again, or twice with another one.
func untilConfirmed(verdict Verdict, run func() (Outcome, error)) (outcomes []Outcome, confirmed bool, err error) {
	seen := map[Verdict]int{verdict: 1}
	for tries := 0; tries < 2*maxRetries && len(outcomes) < maxRetries; tries++ {
		again, err := run()
		if err != nil {
			return outcomes, false, err
		}
		if again.saysNothing() {
			continue
		}
		outcomes = append(outcomes, again)
		if seen[again.Verdict]++; again.counts() && seen[again.Verdict] > 1 {
			return outcomes, true, nil
		}
	}
	return outcomes, false, nil
}

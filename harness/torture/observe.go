package torture

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture/plan"
)

// recordStates adds to the recording what our own watches have seen since the programs were started.
func (r *run) recordStates() {
	if r.states == nil || len(r.stepStarts) == 0 {
		return
	}
	groups := map[string]string{}
	for _, of := range r.resources {
		groups[of.Resource] = of.Group
	}
	for _, e := range r.states.Events(r.stepStarts[0]) {
		e.Group = groups[e.Resource]
		r.recording.Record(history.Record{Seen: &e})
	}
}

// longestLease returns how long the Leases that the programs renew last, the longest; 0 if there are none.
func (ps *processes) longestLease(ctx context.Context) (longest time.Duration, err error) {
	looked := map[string]bool{}
	for _, q := range ps.recording.History().Requests {
		if !plan.RenewsLease(q) || looked[q.Object()] {
			continue
		}
		looked[q.Object()] = true
		lease, err := ps.controlPlane.clients.CoordinationV1().Leases(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
			longest = max(longest, time.Duration(*seconds)*time.Second)
		}
	}
	return longest, nil
}

// observe completes what the run showed, after the controller has stopped.
func (r *run) observe(ctx context.Context, seen *observation) error {
	if err := r.states.Err(); err != nil {
		return err
	}
	var err error
	if seen.end, err = r.normalized(ctx); err != nil {
		return err
	}
	recorded := r.recording.History()
	seen.effects = r.effectsOf(recorded)
	if r.states.Gaps() == 0 {
		seen.effects.Changes = r.states.Counts()
	}
	seen.watched, seen.opened = r.seenAtStart, r.openedIn(recorded)
	if r.learns {
		seen.stepStarts = append(slices.Clone(r.stepStarts), r.restBegan)
		for i, from := range r.stepStarts {
			seen.steps = append(seen.steps, r.effectsOf(recorded.Between(from, seen.stepStarts[i+1])))
			seen.stepEnds = append(seen.stepEnds, r.stepEnds[i])
		}
	}
	for _, q := range recorded.Requests {
		if q.IsDisturbed() {
			seen.injected++
		}
		if r.wasCutOff(q) {
			seen.cutOff = append(seen.cutOff, q)
		}
	}
	seen.attempts = r.attempts(recorded)
	seen.violation, seen.change = r.rules.invariants.CheckAll(r.states)
	seen.during = r.during(seen.change.Time)
	return nil
}

// during says in words in which step something was.
func (r *run) during(at time.Time) string {
	step := -1
	for i, begin := range r.stepStarts {
		if !at.Before(begin) {
			step = i
		}
	}
	switch {
	case at.Before(r.launched):
		return "before the controller was started"
	case !r.restBegan.IsZero() && at.After(r.restBegan):
		return "after the last step"
	case step <= 0:
		return "at the start"
	}
	return fmt.Sprintf("in the step %q", r.stepName(step))
}

// wasCutOff reports whether the controller gave up a request, for no other reason than that it was told to stop. A request
// that broke off because the program or the control plane was killed, or the proxy closed its connection, is none of them.
func (ps *processes) wasCutOff(q history.Request) bool {
	return q.Status == 0 && q.GaveUp && q.OnlyToldToStop() && !ps.isIncidental(q.Resource) && !ps.wasKilled(q)
}

// wasKilled reports whether the program that sent a request was killed before it had ended.
func (ps *processes) wasKilled(q history.Request) bool {
	return slices.ContainsFunc(ps.programs, func(p *program) bool { return p.label == q.Program && p.killedSince(q.Start, q.End()) })
}

// attempts counts the writes to each object, by step.
func (r *run) attempts(recorded *history.History) (all []map[string]int) {
	for i, from := range r.stepStarts {
		var to time.Time // the end
		if i+1 < len(r.stepStarts) {
			to = r.stepStarts[i+1]
		}
		byName := func(_, name string) string { return name }
		all = append(all, oracle.EffectsOf(recorded.Between(from, to), r.scope(), r.scenario.plurals(), byName).Attempts)
	}
	return all
}

// lateEvents is how many Events may be written late because they could not be written before.
func (r *run) lateEvents() (count int) {
	if r.plan.Disconnects() {
		return math.MaxInt / 2 // requests that could not connect are not recorded
	}
	for _, q := range r.recording.History().Requests {
		if q.Resource == "events" && (q.Failed() || q.IsDisturbed()) {
			count++
		}
	}
	return count
}

package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// pollInterval is how often we look at what does not notify us when it changes.
const pollInterval = 50 * time.Millisecond

// sleep waits for a time, until changed is closed, or until the controller ends by itself, which is a *Failure.
func (r *run) sleep(ctx context.Context, changed <-chan struct{}, duration time.Duration) error {
	select {
	case <-changed:
		return r.checkContact(silenceLimit)
	case <-time.After(duration):
		return r.checkContact(silenceLimit)
	case failure := <-r.died:
		return failure
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// elapsed returns how long it is since a time, without the time in which the machine stalled or faults kept the
// controller waiting.
func (r *run) elapsed(since time.Time) time.Duration {
	elapsed := time.Since(since) - r.holdUps.since(since, r.recovered)
	if r.lab == nil {
		return elapsed
	}
	return elapsed - r.lab.stalls.since(since)
}

// await waits until conditions hold that the controller need not bring about.
func (r *run) await(ctx context.Context, rules *oracle.Rules) error {
	const limit = 20 * time.Second
	for begin := time.Now(); ; {
		state, changed, err := r.state(ctx)
		if err != nil {
			return err
		}
		violation := rules.Check(state, nil)
		if violation == nil {
			return nil
		}
		if r.elapsed(begin) > limit {
			return fmt.Errorf("%s, after %s", violation.Message, limit)
		}
		if err := r.sleep(ctx, changed, 4*pollInterval); err != nil {
			return err
		}
	}
}

// converge waits until the controller has done its job. step names what happened before.
func (r *run) converge(ctx context.Context, step string) error {
	for begin := time.Now(); ; {
		state, changed, err := r.state(ctx)
		if err != nil {
			return err
		}
		violation := r.rules.converged.Check(state, nil)
		if violation == nil {
			return nil
		}
		if err := r.states.Err(); err != nil {
			return err
		}
		if r.elapsed(begin) > r.scenario.Patience.Duration {
			if err := r.checkContact(0); err != nil {
				return err
			}
			return &Failure{Lost, step + ": " + violation.Rule,
				fmt.Sprintf("%s, %s after %s", unqualified(violation.Message, r.namespace), r.scenario.Patience.Duration, step)}
		}
		if err := r.sleep(ctx, changed, 4*pollInterval); err != nil {
			return err
		}
	}
}

// awaitOutput waits until the controller has printed what the scenario says.
func (r *run) awaitOutput(ctx context.Context) error {
	for begin := time.Now(); ; {
		log := r.log()
		missing := slices.IndexFunc(r.scenario.Says, func(text string) bool { return !strings.Contains(log, text) })
		if missing < 0 {
			return nil
		}
		if r.elapsed(begin) > r.scenario.Patience.Duration {
			if err := r.checkContact(0); err != nil {
				return err
			}
			text := r.scenario.Says[missing]
			return &Failure{Lost, "output " + text, fmt.Sprintf("it has not printed %q, %s after the last change", text, r.scenario.Patience.Duration)}
		}
		if err := r.sleep(ctx, nil, pollInterval); err != nil {
			return err
		}
	}
}

// awaitWatches waits until the controller has been sent events of every resource that it watches without faults. That may
// take long with some faults, so there is a limit.
func (r *run) awaitWatches(ctx context.Context) error {
	const limit = 5 * time.Second
	for begin := time.Now(); r.elapsed(begin) < limit; {
		missing := maps.Clone(r.watched)
		for _, e := range r.recording.History().Events {
			delete(missing, e.Resource)
		}
		if len(missing) == 0 {
			return nil
		}
		if err := r.sleep(ctx, nil, pollInterval); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until nothing has passed between the controller and the API server for a moment: it has been sent every
// event and has nothing to do. There is a limit; a controller that never settles is for the judge.
func (r *run) settle(ctx context.Context) error {
	const moment, limit = 400 * time.Millisecond, 5 * time.Second
	count, since := -1, time.Now()
	for begin := time.Now(); r.elapsed(begin) < limit; {
		if now := r.recording.Len(); now != count {
			count, since = now, time.Now()
		}
		if count > 0 && r.elapsed(since) > moment {
			return nil
		}
		if err := r.sleep(ctx, nil, pollInterval); err != nil {
			return err
		}
	}
	return nil
}

// awaitRest waits for a quiet time, in which the controller should not write, and returns what came in it. The quiet
// time begins again if a fault occurs in it, or if the controller writes what it still owed: a write that had failed
// before.
func (r *run) awaitRest(ctx context.Context) (quietTime, error) {
	const maxBeginnings = 8
	for beginning := 1; ; beginning++ {
		if err := r.settle(ctx); err != nil {
			return quietTime{}, err
		}
		if beginning > 1 || r.plan.doneLate() {
			if err := r.converge(ctx, "the end"); err != nil {
				return quietTime{}, err
			}
			if err := r.settle(ctx); err != nil {
				return quietTime{}, err
			}
		}
		from := time.Now()
		owed := owedWrites(r.recording.History().Requests)
		if err := r.sleep(ctx, nil, r.scenario.Quiet.Duration); err != nil {
			return quietTime{}, err
		}
		quiet := r.recording.History().Between(from, time.Time{})
		isOver := r.holdUps.since(from, r.recovered) == 0 && !slices.ContainsFunc(quiet.Requests, func(q history.Request) bool { return q.IsDisturbed() || owed[writeOf(q)] })
		if isOver || beginning == maxBeginnings {
			return r.observeRest(ctx, quiet)
		}
	}
}

// write identifies what a request wants to write. Objects that are created have no name.
type write struct{ verb, group, resource, subresource, namespace, name string }

func writeOf(q history.Request) write {
	w := write{q.Verb, q.Group, q.Resource, q.Subresource, q.Namespace, q.Name}
	if q.Verb == "create" {
		w.name = ""
	}
	return w
}

// owedWrites returns the writes that have failed, or got no answer, and have not succeeded since. A controller retries
// them, and when it does so is up to its backoff and to Retry-After.
func owedWrites(requests []history.Request) map[write]bool {
	owed := map[write]bool{}
	for _, q := range requests {
		if !q.IsWrite() {
			continue
		}
		if q.Failed() {
			owed[writeOf(q)] = true
		} else {
			delete(owed, writeOf(q))
		}
	}
	return owed
}

// observeRest returns what came in the quiet time.
func (r *run) observeRest(ctx context.Context, quiet *history.History) (seen quietTime, err error) {
	for _, w := range quiet.Writes() {
		switch {
		case w.Resource == "events" && r.isIncidental(w.Resource):
			seen.events++
		case r.isIncidental(w.Resource), oracle.MayDiffer(w.Verb+" "+w.What(), r.scenario.MayDiffer.AtRest):
		default:
			seen.writes = append(seen.writes, w)
		}
	}
	for _, q := range quiet.Requests {
		if q.Resource != "leases" {
			seen.requests++
		}
	}
	seen.eventsLate = r.lateEvents()
	state, _, err := r.state(ctx)
	if err != nil {
		return quietTime{}, err
	}
	seen.diverged = r.rules.converged.Check(state, nil)
	return seen, nil
}

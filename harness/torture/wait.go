package torture

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// pollInterval is how often we look at what does not notify us when it changes.
const pollInterval = 50 * time.Millisecond

// await waits until conditions hold that the controller need not bring about.
func (ps *processes) await(ctx context.Context, rules *oracle.Rules) error {
	const limit = 20 * time.Second
	for begin := time.Now(); ; {
		state, changed, err := ps.state(ctx)
		if err != nil {
			return err
		}
		violation := rules.Check(state, nil)
		if violation == nil {
			return nil
		}
		if ps.elapsed(begin) > limit {
			return fmt.Errorf("%s, after %s", violation.Message, limit)
		}
		if err := ps.sleep(ctx, changed, 4*pollInterval); err != nil {
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
			return &Failure{Lost, causeOf(violation, r.namespace),
				fmt.Sprintf("%s, %s after %s", unqualified(violation.Message, r.namespace), r.patience(begin), step)}
		}
		if err := r.sleep(ctx, changed, 4*pollInterval); err != nil {
			return err
		}
	}
}

// patience says how long the controller has had since begin, and how long it was by the clock, if that is much longer.
func (r *run) patience(begin time.Time) string {
	text := r.scenario.Patience.Duration.String()
	if all := time.Since(begin); all > 2*r.scenario.Patience.Duration {
		text += fmt.Sprintf(" (%s with the time in which the machine was busy, or the fault kept it waiting)", all.Round(time.Second))
	}
	return text
}

// awaitOutput waits until the controller has printed what the scenario says.
func (ps *processes) awaitOutput(ctx context.Context) error {
	for begin := time.Now(); ; {
		log := ps.log()
		missing := slices.IndexFunc(ps.scenario.Says, func(text string) bool {
			return !strings.Contains(log, strings.ReplaceAll(text, namespaceVariable, ps.namespace))
		})
		if missing < 0 {
			return nil
		}
		if ps.elapsed(begin) > ps.scenario.Patience.Duration {
			if err := ps.checkContact(0); err != nil {
				return err
			}
			text := ps.scenario.Says[missing]
			return &Failure{Lost, "output " + text, fmt.Sprintf("it has not printed %q, %s after the last change", text, ps.scenario.Patience.Duration)}
		}
		if err := ps.sleep(ctx, nil, pollInterval); err != nil {
			return err
		}
	}
}

// awaitWatches waits until each program has been sent events of every resource that it watches without faults. That may
// take long with some faults, so there is a limit.
func (r *run) awaitWatches(ctx context.Context) error {
	const limit = 5 * time.Second
	for begin := time.Now(); r.elapsed(begin) < limit; {
		seen := r.watchedIn(r.recording.History())
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.watched)), func(w watching) bool { return !seen[w] && !r.isSwitchedOff(w.program) }) {
			return nil
		}
		if err := r.sleep(ctx, nil, pollInterval); err != nil {
			return err
		}
	}
	return nil
}

// watchedIn returns the resources of which programs were sent events: of replicas, those of which all were.
func (ps *processes) watchedIn(h *history.History) map[watching]bool {
	sent := map[proxyWatch]bool{}
	for _, e := range h.Events {
		sent[proxyWatch{proxyOf(e.Request), e.Resource}] = true
	}
	return ps.ofAllReplicas(sent)
}

// openedIn returns the resources of which programs opened watches, with or without events: of replicas, those of which all
// did.
func (ps *processes) openedIn(h *history.History) map[watching]bool {
	opened := map[proxyWatch]bool{}
	for _, q := range h.Requests {
		if q.Verb == "watch" && q.Status == http.StatusOK {
			opened[proxyWatch{proxyOf(q.ID), q.Resource}] = true
		}
	}
	return ps.ofAllReplicas(opened)
}

// proxyWatch identifies the watches of a resource by one instance of a program, through its proxy.
type proxyWatch struct {
	proxy    int
	resource string
}

// ofAllReplicas returns the watches of each program; of replicas, those that all have.
func (ps *processes) ofAllReplicas(all map[proxyWatch]bool) map[watching]bool {
	watched := map[watching]bool{}
	for _, p := range ps.programs {
		for w := range all {
			if w.proxy == p.number {
				watched[watching{ps.scenario.target(p.label), w.resource}] = true
			}
		}
	}
	for w := range watched {
		for _, p := range ps.programs {
			if ps.scenario.target(p.label) == w.program && !all[proxyWatch{p.number, w.resource}] {
				delete(watched, w)
			}
		}
	}
	return watched
}

// settle waits until nothing has passed between the programs and the API server for a moment: they have been sent every
// event and have nothing to do. The renewals of Leases don't count, and a program that a fault keeps waiting may have
// something to do. There is a limit; a controller that never settles is for the judge.
func (ps *processes) settle(ctx context.Context) error {
	const moment, limit = 400 * time.Millisecond, 5 * time.Second
	count, since := int64(-1), time.Now()
	for begin := time.Now(); ps.elapsed(begin) < limit; {
		if now := ps.active.Load(); now != count || ps.isHeldUp() {
			count, since = now, time.Now()
		}
		if count > 0 && ps.awake(since) > moment {
			return nil
		}
		if err := ps.sleep(ctx, nil, pollInterval); err != nil {
			return err
		}
	}
	return nil
}

// awaitRest waits for a quiet time, in which the controller should not write, and returns what came in it. The quiet
// time begins again if a fault occurs in it, if somebody else changes an object that the controller watches, if the
// controller writes what it still owed, a write that had failed before, if a program writes for the first time since it
// was frozen, or if the programs write and had no processor before. No fault comes after it: the controller would be stopped
// before it could recover. While a write is owed, and the end is not that of the baseline, it begins again for as long as the
// controller may take: its backoff may be longer than the quiet time.
func (r *run) awaitRest(ctx context.Context) (quietTime, error) {
	const maxBeginnings = 8
	start := time.Now()
	for beginning := 1; ; beginning++ {
		begin := time.Now()
		if beginning == maxBeginnings { // a controller that looks at something again and again meets faults as often
			r.pauseFaults(true)
		}
		if err := r.settle(ctx); err != nil {
			return quietTime{}, err
		}
		held, err := r.awaitHoldUps(ctx)
		if err != nil {
			return quietTime{}, err
		}
		if beginning > 1 || held || r.plan.DoneLate() {
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
		all := r.recording.History()
		quiet := all.Between(from, time.Time{})
		isDisturbed := func(q history.Request) bool { return q.IsDisturbed() || owed[writeOf(q)] }
		isLate := isChangedByOthers(quiet) || r.starvedSince(begin) > 0
		isOver := r.holdUps.since(from, r.recovered) == 0 && !(isLate && r.countAtRest(quiet).isBusy()) &&
			!slices.ContainsFunc(quiet.Requests, isDisturbed) && !r.holdUps.thawedIn(all.Requests, from)
		if !isOver && beginning < maxBeginnings {
			continue
		}
		if isOwed, err := r.isOwed(ctx, all.Requests); err != nil {
			return quietTime{}, err
		} else if isOwed && r.elapsed(start) < r.scenario.Patience.Duration {
			beginning--
			continue
		}
		r.pauseFaults(true)
		if beginning == maxBeginnings || !slices.ContainsFunc(r.recording.History().Between(from, time.Time{}).Requests, isDisturbed) {
			return r.observeRest(ctx, quiet)
		}
		r.pauseFaults(false) // something came after we had read the recording
	}
}

func (r *run) pauseFaults(paused bool) {
	if r.job.isJoint() { // each has had its step
		paused = true
	}
	for _, f := range r.armed {
		f.SetPaused(paused)
	}
}

// awaitHoldUps waits until no fault keeps a program waiting, not even one for which another replica stands in: what it does
// then is judged too. held reports whether there was anything to wait for.
func (ps *processes) awaitHoldUps(ctx context.Context) (held bool, err error) {
	for len(ps.holdUps.current(ps.recovered)) > 0 {
		held = true
		if err := ps.sleep(ctx, nil, pollInterval); err != nil {
			return held, err
		}
	}
	return held, nil
}

// isChangedByOthers reports whether the controller was sent an event of an object that it did not write itself in this time:
// on a busy machine, the Deployment controller may report its progress late.
func isChangedByOthers(quiet *history.History) bool {
	type object struct{ group, resource, namespace, name string }
	written := map[object]bool{}
	for _, w := range quiet.Writes() {
		written[object{w.Group, w.Resource, w.Namespace, w.Name}] = true
	}
	return slices.ContainsFunc(quiet.Events, func(e history.Event) bool {
		return e.Name != "" && !written[object{e.Group, e.Resource, e.Namespace, e.Name}] // bookmarks have no name
	})
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

// isOwed reports whether the end is not that of the baseline, and a write of the job that was not refused for good has not been repeated.
func (r *run) isOwed(ctx context.Context, requests []history.Request) (bool, error) {
	if r.end == nil {
		return false, nil
	}
	mayBeRepeated := false
	owed := owedWrites(requests)
	for _, q := range requests {
		isFinal := q.Status == http.StatusNotFound || q.Status == http.StatusForbidden || q.Status == http.StatusUnprocessableEntity || q.Status == http.StatusBadRequest
		mayBeRepeated = mayBeRepeated || q.Failed() && owed[writeOf(q)] && !r.isIncidental(q.Resource) && (!isFinal || q.IsDisturbed())
	}
	if !mayBeRepeated {
		return false, nil
	}
	end, err := r.normalized(ctx)
	return err == nil && len(oracle.Compare(r.end, end)) > 0, err
}

// observeRest returns what came in the quiet time.
func (r *run) observeRest(ctx context.Context, quiet *history.History) (seen quietTime, err error) {
	seen = r.countAtRest(quiet)
	seen.eventsLate = r.lateEvents()
	state, _, err := r.state(ctx)
	if err != nil {
		return quietTime{}, err
	}
	seen.diverged = r.rules.converged.Check(state, nil)
	return seen, nil
}

func (ps *processes) countAtRest(quiet *history.History) (seen quietTime) {
	for _, q := range quiet.Requests {
		isEvent := q.IsWrite() && q.Resource == "events" && ps.isIncidental(q.Resource)
		switch {
		case isEvent:
			seen.events++
		case q.IsWrite() && !ps.isIncidental(q.Resource) && !oracle.MayDiffer(q.Verb+" "+q.What(), ps.scenario.MayDiffer.AtRest):
			seen.writes = append(seen.writes, q)
		}
		if !isEvent && q.Resource != "leases" {
			seen.requests++
		}
	}
	return seen
}

package torture

import (
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"example.com/controllers/harness/history"
)

// holdUps are the times in which faults kept programs waiting: they were frozen, could not connect, or waited for an
// answer or an event that a proxy held back. Like stalls, they do not count as time in which the controller could have done
// something.
type holdUps struct {
	mu  sync.Mutex
	all []*holdUp // sorted by from
}

// holdUp is one such time.
type holdUp struct {
	label    string // of the program that was kept waiting; "" for all
	kind     history.InjectionKind
	from, to time.Time // to is zero until the fault is over
	// recovered is true if to includes the time that the program took to recover from an outage.
	recovered bool
}

// maxHeldUp is the most that hold-ups account for in a run. A fault on all requests or events holds up a controller
// that polls or writes without end for as long as the run lasts.
const maxHeldUp = 3 * time.Minute

// holder returns what a proxy calls when a fault begins to keep a program waiting; all programs, if label is "". See
// [apiproxy.Options.Hold].
func (ps *processes) holder(label string) func(history.InjectionKind) (over func()) {
	return func(kind history.InjectionKind) func() { return ps.holdUps.begin(label, kind) }
}

// begin notes that a fault keeps a program waiting until over is called.
func (h *holdUps) begin(label string, kind history.InjectionKind) (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := &holdUp{label: label, kind: kind, from: time.Now()}
	h.all = append(h.all, one)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		one.to = time.Now()
	}
}

// recovery reports whether a program, or all for "", has recovered from an outage that began at a time.
type recovery func(label string, from time.Time) bool

// since returns how much of the time since begin faults have kept any program waiting.
func (h *holdUps) since(begin time.Time, recovered recovery) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sinceLocked(begin, recovered)
}

func (h *holdUps) sinceLocked(begin time.Time, recovered recovery) (since time.Duration) {
	left := maxHeldUp
	var until time.Time // what came before is counted
	for _, one := range h.all {
		from, to := one.from, one.end(time.Now(), recovered)
		if from.Before(until) {
			from = until
		}
		if !to.After(from) {
			continue
		}
		until = to
		to = from.Add(min(left, to.Sub(from)))
		left -= to.Sub(from)
		if from.Before(begin) {
			from = begin
		}
		since += max(0, to.Sub(from))
	}
	return since
}

// current returns the hold-ups that go on, unless they have gone on for longer than counts.
func (h *holdUps) current(recovered recovery) (all []*holdUp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sinceLocked(time.Time{}, recovered) >= maxHeldUp {
		return nil
	}
	now := time.Now()
	for _, one := range h.all {
		if one.to.IsZero() || one.end(now, recovered).Equal(now) {
			all = append(all, one)
		}
	}
	return all
}

// firstBackoff is more than client-go's informers wait before they watch again for the first time: 0.8 seconds, which jitter may
// double.
const firstBackoff = 2 * time.Second

// end returns the end of a hold-up; until it has one, that is now. An outage ends when the program has recovered from it. A
// client that doubles its waits, with jitter, may need twice as long for that as nobody could connect, and firstBackoff.
func (one *holdUp) end(now time.Time, recovered recovery) time.Time {
	switch {
	case one.to.IsZero():
		return now
	case one.kind != history.Disconnected || one.recovered:
		return one.to
	}
	latest := one.to.Add(2*one.to.Sub(one.from) + firstBackoff)
	switch {
	case now.After(latest):
		one.to, one.recovered = latest, true
	case recovered(one.label, one.from):
		one.to, one.recovered = now, true
	default:
		return now
	}
	return one.to
}

// outageSince reports whether a program could not connect at any time since from.
func (h *holdUps) outageSince(label string, from time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.all, func(one *holdUp) bool {
		return one.kind == history.Disconnected && one.isOf(label) && (one.to.IsZero() || one.to.After(from))
	})
}

// isOf reports whether a program was kept waiting.
func (one *holdUp) isOf(label string) bool { return one.label == "" || one.label == label }

// thawedIn reports whether a program that was frozen has written only since from, for the first time after it: on a busy
// machine, it may not get a processor for seconds, and what it writes then was begun before. Its Lease and its Events do not
// count.
func (h *holdUps) thawedIn(requests []history.Request, from time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.all, func(one *holdUp) bool {
		if one.kind != history.ControllerFrozen || one.to.IsZero() {
			return false
		}
		writes := func(q history.Request) bool {
			return q.IsWrite() && one.isOf(q.Program) && q.Resource != "leases" && q.Resource != "events" && !q.Start.Before(one.to)
		}
		first := slices.IndexFunc(requests, writes)
		return first >= 0 && !requests[first].Start.Before(from)
	})
}

// isHeldUp reports whether a fault keeps a program waiting at present. If a replica is frozen or cannot connect, another
// one is expected to do its work.
func (ps *processes) isHeldUp() bool {
	current := ps.holdUps.current(ps.recovered)
	isOut := func(one *holdUp) bool {
		return one.kind == history.ControllerFrozen || one.kind == history.Disconnected
	}
	for _, one := range current {
		standsIn := func(p *program) bool {
			isReplica := p.label != one.label && ps.scenario.target(p.label) == ps.scenario.target(one.label)
			return isReplica && !slices.ContainsFunc(current, func(other *holdUp) bool { return isOut(other) && other.isOf(p.label) })
		}
		if !isOut(one) || !slices.ContainsFunc(ps.programs, standsIn) {
			return true
		}
	}
	return false
}

// hasRecovered reports whether a program, or all for "", has recovered from an outage that began at a time and is over: it
// watches what it must watch, and has completed the writes that the outage broke.
func (ps *processes) hasRecovered(label string, from time.Time) bool {
	open := map[watching]bool{} // with the label for a program
	var since []history.Request
	for _, q := range ps.recording.History().Requests {
		if label != "" && q.Program != label {
			continue
		}
		if q.Open {
			open[watching{q.Program, q.Resource}] = true
		}
		if !q.End().Before(from) && !ps.isIncidental(q.Resource) {
			since = append(since, q)
		}
	}
	for _, p := range ps.programs {
		for w := range ps.opened {
			isToWatch := !p.isSwitchedOff() && (label == "" || p.label == label) && w.program == ps.scenario.target(p.label)
			if isToWatch && !open[watching{p.label, w.resource}] {
				return false
			}
		}
	}
	return len(owedWrites(since)) == 0
}

// mayHaveLostLease reports whether a fault, or a machine that stalled or was short of processors, may have kept a program that
// was started at this time from renewing its Lease: it was frozen, or no renewal succeeded for more than twice the usual time
// between two. That is the lower quartile, because a busy machine delays many renewals, and hastens none. A leader that has lost
// its Lease exits by design, with whatever status, and is started again. Before that it may write the Lease once or twice more:
// a renewal that comes too late, and the release (ReleaseOnCancel).
func (ps *processes) mayHaveLostLease(p *program, started time.Time) bool {
	const lastWords = 2
	var renewals []time.Time
	isDisturbed := ps.holdUps.outageSince(p.label, started)
	for _, q := range ps.recording.History().Requests {
		if q.Program != p.label || q.Start.Before(started) || q.Resource != "leases" || q.Group != coordinationv1.GroupName || !q.IsWrite() {
			continue
		}
		isDisturbed = isDisturbed || q.IsDisturbed()
		if !q.Failed() {
			renewals = append(renewals, q.End())
		}
	}
	if len(renewals) == 0 {
		return false
	}
	if p.frozenSince(started) {
		return true
	}
	var gaps []time.Duration
	for i := 1; i < len(renewals); i++ {
		gaps = append(gaps, renewals[i].Sub(renewals[i-1]))
	}
	var usual time.Duration
	if len(gaps) > 0 {
		usual = slices.Sorted(slices.Values(gaps))[(len(gaps)-1)/4]
	}
	gaps = append(gaps, time.Since(renewals[len(renewals)-1]))
	isDisturbed = isDisturbed || ps.starvedSince(renewals[max(0, len(renewals)-1-lastWords)]) > 0
	return isDisturbed && slices.Max(gaps[max(0, len(gaps)-1-lastWords):]) > 2*usual
}

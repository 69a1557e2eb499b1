package torture

import (
	"maps"
	"slices"
	"sync"
	"time"

	"example.com/controllers/harness/history"
)

// holdUps are the times in which faults kept the controller waiting: it was frozen, could not connect, or waited for an
// answer or an event that a proxy held back. Like stalls, they do not count as time in which it could have done something.
type holdUps struct {
	mu  sync.Mutex
	all []*holdUp // sorted by from
}

// holdUp is one such time.
type holdUp struct {
	kind     history.InjectionKind
	from, to time.Time // to is zero until the fault is over
	// recovered is true if to includes the time that the controller took to recover from an outage.
	recovered bool
}

// maxHeldUp is the most that hold-ups account for in a run. A fault on all requests or events holds up a controller
// that polls or writes without end for as long as the run lasts.
const maxHeldUp = 3 * time.Minute

// begin notes that a fault keeps the controller waiting until over is called. See [apiproxy.Options.Hold].
func (h *holdUps) begin(kind history.InjectionKind) (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := &holdUp{kind: kind, from: time.Now()}
	h.all = append(h.all, one)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		one.to = time.Now()
	}
}

// since returns how much of the time since begin faults have kept the controller waiting. recovered reports whether it
// has recovered from an outage that began at a time.
func (h *holdUps) since(begin time.Time, recovered func(from time.Time) bool) (since time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
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

// end returns the end of a hold-up; until it has one, that is now. An outage ends when the controller has recovered from
// it. A client that doubles its waits, with jitter, may need twice as long for that as nobody could connect.
func (one *holdUp) end(now time.Time, recovered func(from time.Time) bool) time.Time {
	switch {
	case one.to.IsZero():
		return now
	case one.kind != history.Disconnected || one.recovered:
		return one.to
	}
	latest := one.to.Add(2 * one.to.Sub(one.from))
	switch {
	case now.After(latest):
		one.to, one.recovered = latest, true
	case recovered(one.from):
		one.to, one.recovered = now, true
	default:
		return now
	}
	return one.to
}

// outageSince reports whether nobody could connect at any time since from.
func (h *holdUps) outageSince(from time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.all, func(one *holdUp) bool {
		return one.kind == history.Disconnected && (one.to.IsZero() || one.to.After(from))
	})
}

// recovered reports whether the controller has recovered from an outage that began at a time and is over: it watches
// what it must watch, and has completed the writes that the outage broke.
func (r *run) recovered(from time.Time) bool {
	missing := maps.Clone(r.watched)
	var since []history.Request
	for _, q := range r.recording.History().Requests {
		if q.Open {
			delete(missing, q.Resource)
		}
		if !q.End().Before(from) && !r.isIncidental(q.Resource) {
			since = append(since, q)
		}
	}
	return len(missing) == 0 && len(owedWrites(since)) == 0
}

// mayHaveLostLease reports whether a fault may have kept a program that was started at this time from renewing its Lease:
// it was frozen, or its last renewal is longer ago than twice the time between two renewals. A leader that has lost its
// Lease exits by design, with whatever status, and is started again.
func (r *run) mayHaveLostLease(p *program, started time.Time) bool {
	var last time.Time // of the renewals
	var usual time.Duration
	isDisturbed := r.holdUps.outageSince(started)
	for _, q := range r.recording.History().Requests {
		if q.Program != p.process.label || q.Start.Before(started) || q.Resource != "leases" || q.Group != leaseGroup || !q.IsWrite() {
			continue
		}
		isDisturbed = isDisturbed || q.IsDisturbed()
		if q.Failed() {
			continue
		}
		if !last.IsZero() {
			usual = max(usual, q.End().Sub(last))
		}
		last = q.End()
	}
	return !last.IsZero() && (p.frozenSince(started) || isDisturbed && time.Since(last) > 2*usual)
}

package apiproxy

import (
	"sync/atomic"
	"time"

	"example.com/controllers/harness/history"
)

// Armed is a fault that is in force, and what it has met so far. Proxies that were started with the same one number the
// requests that it matches together, in the order in which they arrive at any of them, and it lasts for the same time in all.
type Armed struct {
	Fault
	matched atomic.Int64 // how many requests have matched
	first   atomic.Int64 // when the fault first applied to a request, in Unix nanoseconds; 0 before that
	paused  atomic.Bool
	// of a fault on events, by ArmAtEvents:
	countsEvents bool
	events       atomic.Int64 // how many events have matched
	met          atomic.Bool
}

// Arm returns a fault that several proxies can share.
func Arm(f Fault) *Armed { return &Armed{Fault: f} }

// ArmAtEvents is like [Arm] for a fault with [Effect.Watch] and an Event. The event is counted among those of all watches that match,
// whichever they are, so that a watch may have been opened during a pause.
func ArmAtEvents(f Fault) *Armed { return &Armed{Fault: f, countsEvents: true} }

// IsMet reports whether a fault of [ArmAtEvents] was done to an event.
func (f *Armed) IsMet() bool { return f.met.Load() }

// SetPaused pauses the fault, or resumes it. Requests that arrive during a pause, and events for [ArmAtEvents], are neither disturbed nor
// counted.
func (f *Armed) SetPaused(paused bool) { f.paused.Store(paused) }

// applies counts a request that matches, and says whether the fault applies to it.
func (f *Armed) applies() bool {
	if f.paused.Load() || !f.includes(f.matched.Add(1)) {
		return false
	}
	now := time.Now().UnixNano()
	f.first.CompareAndSwap(0, now)
	return f.For == 0 || now-f.first.Load() <= int64(f.For)
}

// isAtEvent counts an event of a watch that matches, and says whether it is the one at which the fault is aimed.
func (f *Armed) isAtEvent() bool {
	return !f.paused.Load() && f.events.Add(1) == int64(max(1, f.Event))
}

// injection is the decision what to do to one request: the effects of all faults that apply to it, combined.
type injection struct {
	Effect               // For is 0
	refusedBy   Fault    // the fault that Refuse comes from; the client is told of it
	noBookmarks bool     // Watch is never WatchNoBookmarks here, because a watch may meet both
	atEvents    []*Armed // those of ArmAtEvents that match
}

// inject counts a request with every one of the faults that it matches, and decides what to do to it.
func inject(faults []*Armed, r history.Request) injection {
	var i injection
	for _, f := range faults {
		if f.countsEvents && f.Matches(r) {
			i.atEvents = append(i.atEvents, f)
		}
		if f.countsEvents || !f.Matches(r) || !f.applies() {
			continue
		}
		for _, k := range keys {
			if k.combine != nil {
				k.combine(&i, f.Fault)
			}
		}
	}
	return i
}

// recorded is the injection as the history has it. skipped says why nothing can be done to the events of the watch; it
// is "" if it can.
func (i injection) recorded(skipped string) []history.Injection {
	var all []history.Injection
	for _, k := range keys {
		if k.record == nil {
			continue
		}
		for _, one := range k.record(i) {
			if k.onEvents {
				one.Skipped = skipped
			}
			all = append(all, one)
		}
	}
	return history.SortInjections(all)
}

// editsWatch says whether the events of a watch may have to be changed, so that they cannot pass as they are.
func (i *injection) editsWatch() bool {
	return i.Late != 0 || i.Watch != "" || i.noBookmarks || len(i.atEvents) > 0
}

// holdsReply says whether the client gets the API server's answer later than it came.
func (i *injection) holdsReply() bool {
	return i.AnswerLate != 0 || i.Freeze == After || i.failsMachine(After)
}

// failsMachine says whether a machine fails before or after the request.
func (i *injection) failsMachine(when string) bool { return i.Reboot == when || i.PowerCut == when }

// losesReply says whether the client gets something else than the API server's answer.
func (i *injection) losesReply() bool {
	return i.Lost == LostReply || i.Lost == LostLate || i.Kill == After || i.Crash == After
}

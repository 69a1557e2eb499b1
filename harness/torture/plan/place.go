package plan

import (
	"time"

	"example.com/controllers/harness/apiproxy"
)

// Place is where a plan's fault comes in a run, so that faults of several plans can come in one run: a fault changes how many requests
// there are after it, so their numbers begin anew with each step.
type Place struct {
	Step  int            // of World.Steps, from 0
	Fault apiproxy.Fault // whose numbers count from the beginning of the step
	// OfEvent says that the number is that of an event, among those of all watches that match; see [apiproxy.ArmAtEvents].
	OfEvent bool
}

// where is a request or an event of the baseline.
type where struct{ step, number int }

// Locate returns a function that says where a plan's fault comes. ok is false for a plan that needs a run of its own: it has several
// faults, or none; or its fault lasts beyond a step, or is one at a whole watch.
func (w World) Locate() func(Plan) (at Place, ok bool) {
	requests := map[Class][]where{}
	counts := map[Class]map[int]int{} // by step
	watches := map[int64]Class{}
	inStep := func(c Class, at time.Time) where {
		step := w.stepAt(at)
		if counts[c] == nil {
			counts[c] = map[int]int{}
		}
		counts[c][step]++
		return where{step, counts[c][step]}
	}
	type watch struct {
		Class
		n int
	}
	numbers := map[int64]watch{}
	for _, r := range w.Baseline.Requests {
		if r.Resource == "" {
			continue
		}
		c := classOf(r)
		requests[c] = append(requests[c], inStep(c, r.Start))
		if r.Verb == "watch" {
			watches[r.ID], numbers[r.ID] = c, watch{c, len(requests[c])}
		}
	}
	counts = map[Class]map[int]int{}
	events := map[watch][]where{}
	for _, e := range w.Baseline.Events {
		if c, ok := watches[e.Request]; ok && e.Type != "BOOKMARK" {
			events[numbers[e.Request]] = append(events[numbers[e.Request]], inStep(c, e.Time))
		}
	}
	return func(p Plan) (Place, bool) {
		if len(p.Faults) != 1 || !isShort(p) {
			return Place{}, false
		}
		f := p.Faults[0]
		of, n := requests[classOfFault(f)], f.From
		if f.Event > 0 {
			of, n = events[watch{classOfFault(f), f.From}], f.Event
		}
		if n < 1 || n > len(of) || f.From != f.To || of[n-1].step < 0 {
			return Place{}, false
		}
		at := Place{Step: of[n-1].step, Fault: f, OfEvent: f.Event > 0}
		if at.OfEvent {
			at.Fault.From, at.Fault.To, at.Fault.Event = 0, 0, of[n-1].number
		} else {
			at.Fault.From, at.Fault.To = of[n-1].number, of[n-1].number
		}
		return at, true
	}
}

// stepAt returns the step in which something came, or -1 if it came before the first or after the last.
func (w World) stepAt(at time.Time) int {
	step := -1
	for i, begin := range w.Steps {
		if !at.Before(begin) {
			step = i
		}
	}
	if step == len(w.Steps)-1 { // the end of the last one
		return -1
	}
	return step
}

// isShort reports whether a fault is over before the next step.
func isShort(p Plan) bool {
	e := p.Faults[0].Effect
	isLong := takesLong(p) && e.Crash == ""
	return !isLong && e.For == 0 && e.Late == 0 && e.Watch != apiproxy.WatchNoBookmarks && e.Watch != apiproxy.WatchHeld
}

package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// Baseline is what a scenario comes to without faults: what several runs had in common, and how far they differed.
type Baseline struct {
	// Runs is how many runs it took until two in a row brought nothing new.
	Runs int
	// Expected is how often the controller wrote what.
	Expected oracle.Expected
	// History is the recording of the first run. Plans aim at its requests and events.
	History *history.History

	end         []string            // of the first run; normalized, see oracle.Normalize
	differences []oracle.Difference // of the ends of the others
	requests    int                 // the most in one quiet time
	events      int                 // the most writes of Events in one quiet time
	watched     map[watching]bool
	opened      map[watching]bool
	lease       time.Duration   // see observation.lease
	wide        map[string]bool // programs that are told their namespace, and look at all
	steps       []stepBaseline
	stepStarts  []time.Time // of the first run, and when its last step ended
}

// clone returns a copy to which runs can be added.
func (b *Baseline) clone() *Baseline {
	c := *b
	c.Expected = b.Expected.Clone()
	c.differences, c.watched, c.opened = slices.Clone(b.differences), maps.Clone(b.watched), maps.Clone(b.opened)
	return &c
}

// watching says that a program watches a resource.
type watching struct {
	program  string // see Scenario.target
	resource string
}

// observation is what one run showed. Whether the run failed follows from it alone.
type observation struct {
	violation *oracle.Violation // the first invariant that did not hold, or nil
	change    oracle.Change     // after which it did not
	during    string            // when that was, in words
	endAtRest []string          // before the controller was told to stop; normalized, see oracle.Normalize
	end       []string          // likewise, after it has stopped
	effects   oracle.Effects
	injected  int               // requests that something was done to
	watched   map[watching]bool // see run.watched
	opened    map[watching]bool // see run.opened
	attempts  []map[string]int  // writes to each object, by step
	cutOff    []history.Request // in flight at SIGTERM, and given up by the controller
	rest      quietTime
	lease     time.Duration // how long the Leases of the controller last, the longest; 0 if there are none, or not looked for

	// Of a run without faults:
	stepStarts []time.Time      // and when the last step ended
	steps      []oracle.Effects // of each step
	stepEnds   [][]string       // normalized; nil for a step that goes on without waiting
}

// quietTime is what was seen in the quiet time at the end of a run.
type quietTime struct {
	writes     []history.Request // that should not have come, Events left out
	diverged   *oracle.Violation // of what had been converged
	requests   int               // without those for Leases, and writes of Events
	events     int               // writes of Events
	eventsLate int               // Events that may come late, as they could not be written before
}

// isBusy reports whether the programs did anything in the quiet time.
func (q quietTime) isBusy() bool {
	return len(q.writes) > 0 || q.requests > 0 || q.events > 0
}

// judge says what a run without faults shows to be wrong, as far as that can be said without a baseline.
func (s *Scenario) judge(o *observation, namespace string) (failure *Failure, notes []string) {
	if writes := o.rest.writes; len(writes) > 0 {
		w := writes[0]
		return &Failure{NoRest, "writes " + w.Verb + " " + w.What(), fmt.Sprintf("%d writes in %s in which nothing happens, for example %s %s %s",
			len(writes), s.Quiet.Duration, w.Verb, w.What(), unqualified(w.Object(), namespace))}, nil
	}
	if v := o.rest.diverged; v != nil {
		return &Failure{NoRest, "converged " + causeOf(v, namespace), "it had converged, and then it had not: " + unqualified(v.Message, namespace)}, nil
	}
	if len(o.cutOff) > 0 {
		q := o.cutOff[0]
		message := fmt.Sprintf("it gave up a request in flight when it was told to stop: %s %s %s", q.Verb, q.What(), unqualified(q.Object(), namespace))
		if s.Drains {
			return &Failure{NoStop, "cuts off", message}, nil
		}
		notes = append(notes, message)
	}
	if v := o.violation; v != nil {
		return brokenRule(v, o.change, o.during, namespace), notes
	}
	for _, attempts := range o.attempts {
		for _, what := range slices.Sorted(maps.Keys(attempts)) {
			if n := attempts[what]; s.MostTries > 0 && n > s.MostTries {
				kind := strings.Join(strings.Fields(what)[:2], " ")
				return &Failure{NoRest, "attempts " + kind, fmt.Sprintf("%s: tried %d times in one step, should be %d at most", what, n, s.MostTries)}, notes
			}
		}
	}
	return nil, notes
}

// brokenRule is the failure of a run in which an invariant did not hold after a change, and when that was; "" if it is not known.
func brokenRule(v *oracle.Violation, change oracle.Change, during, namespace string) *Failure {
	when := change.String()
	if during != "" {
		when += ", " + during
	}
	return &Failure{RuleBroken, causeOf(v, namespace), fmt.Sprintf("%s (%s)", unqualified(v.Message, namespace), when)}
}

// judgeAgainst says what is wrong with a run, compared with runs without faults. Notes are what differs and may be right.
func (s *Scenario) judgeAgainst(b *Baseline, o *observation, namespace string) (failure *Failure, notes []string) {
	failure, notes = s.judge(o, namespace)
	if failure != nil {
		return failure, notes
	}
	end := o.end
	if len(o.cutOff) > 0 { // what it would have written was cut off by SIGTERM, which is judged above
		end = o.endAtRest
	}
	if differences := oracle.Compare(b.end, end); len(differences) > 0 {
		var causes, messages []string
		for _, d := range differences {
			causes, messages = append(causes, d.Cause()), append(messages, d.String())
		}
		slices.Sort(causes)
		return &Failure{Different, strings.Join(slices.Compact(causes), "; "), strings.Join(messages, "; ")}, notes
	}
	// A controller that polls may poll once more by chance, and two watches may have to be opened again.
	if limit := 2*b.requests + 2; o.rest.requests > limit {
		return &Failure{NoRest, "requests", fmt.Sprintf("%d requests in %s in which nothing happens; without faults there are %d at most",
			o.rest.requests, s.Quiet.Duration, b.requests)}, notes
	}
	// A controller that repeats a reconcile because of a fault may record an Event of it.
	if limit := b.events + o.effects.Disturbed + o.rest.eventsLate; o.rest.events > limit {
		return &Failure{NoRest, "events", fmt.Sprintf("%d Events in %s in which nothing happens; without faults there are %d at most",
			o.rest.events, s.Quiet.Duration, b.events)}, notes
	}
	for _, d := range b.Expected.Deviations(o.effects, o.injected, s.MayDiffer.Writes) {
		switch {
		case d.Tolerable:
			notes = append(notes, d.Message)
		case failure != nil:
		case d.More:
			failure = &Failure{TooMuch, d.What, d.Message}
		default:
			failure = &Failure{TooLittle, d.What, d.Message}
		}
	}
	return failure, notes
}

// unqualified leaves the run's namespace out of the names of objects.
func unqualified(text, namespace string) string { return strings.ReplaceAll(text, namespace+"/", "") }

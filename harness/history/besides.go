package history

import (
	"slices"
	"time"
)

// Besides is what a recording knows that is not on the wire. All of it is sorted by time, and may be missing.
type Besides struct {
	Seen      []Event // of the recorder's own watches, which no fault disturbs: what the API server had, and when
	Steps     []Step
	Processes []Process
	Samples   []Sample
}

// Step is the beginning of a step of what is done to the world: by a scenario of torture, an exercise or a lesson's page.
type Step struct {
	Time time.Time `json:"time"`
	Name string    `json:"name"`
}

// Process is a change in what a process does.
type Process struct {
	Time    time.Time    `json:"time"`
	Program string       `json:"program"` // as in [Request.Program]
	State   ProcessState `json:"state"`
	Why     string       `json:"why,omitempty"` // in a few words, if somebody has done it to the process
}

// ProcessState is what a process does.
type ProcessState string

// The states of a process. One that has been told to stop has a time to do so in.
const (
	Running  ProcessState = "running"
	Frozen   ProcessState = "frozen"
	Stopping ProcessState = "stopping" // has been sent SIGTERM or SIGINT
	Ended    ProcessState = "ended"    // by itself, or because it was told to
	Killed   ProcessState = "killed"
)

// Sample is a value of a metric that a program serves.
type Sample struct {
	Time    time.Time `json:"time"`
	Program string    `json:"program"`         // as in [Request.Program]
	Metric  string    `json:"metric"`          // such as workqueue_depth
	Of      string    `json:"of,omitempty"`    // the values of its labels, such as the name of a queue
	Value   float64   `json:"value,omitempty"` // in the unit of the metric
}

// addBesides adds a record that is neither a request nor an event of a client.
func (h *History) addBesides(r Record) {
	switch {
	case r.Seen != nil:
		h.Seen = append(h.Seen, *r.Seen)
	case r.Step != nil:
		h.Steps = append(h.Steps, *r.Step)
	case r.Process != nil:
		h.Processes = append(h.Processes, *r.Process)
	case r.Sample != nil:
		h.Samples = append(h.Samples, *r.Sample)
	}
}

func (b *Besides) sortBesides() {
	slices.SortStableFunc(b.Seen, byTimeOf(Event.at))
	slices.SortStableFunc(b.Steps, byTimeOf(Step.at))
	slices.SortStableFunc(b.Processes, byTimeOf(Process.at))
	slices.SortStableFunc(b.Samples, byTimeOf(Sample.at))
}

// between returns what is from one time to another; see [between].
func (b Besides) between(from, to time.Time) Besides {
	return Besides{
		Seen:      between(b.Seen, from, to, Event.at),
		Steps:     between(b.Steps, from, to, Step.at),
		Processes: between(b.Processes, from, to, Process.at),
		Samples:   between(b.Samples, from, to, Sample.at),
	}
}

func (e Event) at() time.Time   { return e.Time }
func (s Step) at() time.Time    { return s.Time }
func (p Process) at() time.Time { return p.Time }
func (s Sample) at() time.Time  { return s.Time }

// byTimeOf compares by the time that at returns.
func byTimeOf[T any](at func(T) time.Time) func(a, b T) int {
	return func(a, b T) int { return at(a).Compare(at(b)) }
}

// between returns the part of all, which is sorted by the time that at returns, from one time (inclusive) to another
// (exclusive). A zero time is no limit. An empty part is nil.
func between[T any](all []T, from, to time.Time, at func(T) time.Time) []T {
	isBefore := func(one T, t time.Time) int { return at(one).Compare(t) }
	if !to.IsZero() {
		end, _ := slices.BinarySearchFunc(all, to, isBefore)
		all = all[:end]
	}
	if !from.IsZero() {
		begin, _ := slices.BinarySearchFunc(all, from, isBefore)
		all = all[begin:]
	}
	if len(all) == 0 {
		return nil
	}
	return slices.Clip(all)
}

// Records returns the history as records, in the order in which [Write] would best write them: by time.
func (h *History) Records() []Record {
	var all []Record
	for _, s := range h.Steps {
		all = append(all, Record{Step: &s})
	}
	for _, p := range h.Processes {
		all = append(all, Record{Process: &p})
	}
	for _, e := range h.Seen {
		all = append(all, Record{Seen: &e})
	}
	for _, r := range h.Requests {
		all = append(all, Record{Request: &r})
	}
	for _, e := range h.Events {
		all = append(all, Record{Event: &e})
	}
	for _, s := range h.Samples {
		all = append(all, Record{Sample: &s})
	}
	slices.SortStableFunc(all, byTimeOf(Record.at))
	return all
}

// at is when what is recorded began.
func (r Record) at() time.Time {
	switch {
	case r.Request != nil:
		return r.Request.Start
	case r.Event != nil:
		return r.Event.Time
	case r.Seen != nil:
		return r.Seen.Time
	case r.Step != nil:
		return r.Step.Time
	case r.Process != nil:
		return r.Process.Time
	case r.Sample != nil:
		return r.Sample.Time
	}
	return time.Time{}
}

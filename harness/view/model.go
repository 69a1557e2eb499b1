// Package view makes a recording visible: what the API server had, what each client had been told, what it wrote, and what was
// broken on purpose.
//
// [Of] turns a [history.History] into a [Model]. It is a pure function, and decides everything that a drawing shows; package page draws
// it.
//
// What is not on the wire is not in a recording, so some of a model is inferred, by rules that are stated where they are applied:
// when a version came to be (truth.go), what a client has been told by a list (told.go), and why a program wrote (cause.go).
// Where a rule has no answer, there is none in the model.
package view

import "time"

// Model is a recording, ready to be drawn. It refers to its parts by their indexes; -1 means none. All times are in milliseconds
// since Start.
type Model struct {
	Title    string    `json:"title"`
	Start    time.Time `json:"start"`    // of the first record
	End      float64   `json:"end"`      // of the last record
	Programs []string  `json:"programs"` // names of the programs that sent the requests, sorted
	Lanes    []Lane    `json:"lanes"`    // sorted by resource, namespace and name
	Marks    []Mark    `json:"marks"`    // the requests, sorted by Start
	Events   []Event   `json:"events"`   // without bookmarks, sorted by Told
	Missing  []string  `json:"missing"`  // what the recording does not have, in sentences; empty if it has everything

	Steps     []Step    `json:"steps,omitempty"`     // sorted by At
	Processes []Process `json:"processes,omitempty"` // sorted by Program
	Series    []Series  `json:"series,omitempty"`    // sorted by Program, Metric and Of
}

// Step is the beginning of a step of what was done to the world.
type Step struct {
	At   float64 `json:"at"`
	Name string  `json:"name"`
}

// Process is a process of a program, if something is known of it beyond its requests.
type Process struct {
	Program int     `json:"program"`
	Number  int     `json:"number,omitempty"` // as in Mark
	States  []State `json:"states,omitempty"` // sorted by From, without gaps; empty if they were not recorded
	// Leads are the times in which no other process wrote a Lease after this one had, up to its end, or its last request. Who holds it is content, which
	// is not in a recording, but only who holds a Lease writes it, or takes it.
	Leads []Lead `json:"leads,omitempty"`

	last float64 // when its last request ended
}

// State is what a process does for a time.
type State struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Is   string  `json:"is"` // see [history.ProcessState]
}

// Lead is a time in which a process was the last to write a Lease.
type Lead struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Lane int     `json:"lane"` // of the Lease
	// Number tells the processes apart if several, of which nothing else is known, share a row.
	Number int `json:"number,omitempty"`
}

// Series are the values of a metric.
type Series struct {
	Program int          `json:"program"`
	Metric  string       `json:"metric"`
	Of      string       `json:"of,omitempty"` // the values of its labels
	Points  [][2]float64 `json:"points"`       // time and value, sorted by time
	Most    float64      `json:"most"`         // the largest value
}

// Lane is an object, or all requests about a resource that name no object.
type Lane struct {
	Resource string `json:"resource"` // as kubectl names it, such as deployments.apps; for a path that is no resource, ""
	Name     string `json:"name"`     // namespace/name, or name; "" for requests that name no object
	// Family is what the names of several objects that were generated from one have in common, such as shop/frontend-*;
	// "" if there is only one such object.
	Family   string    `json:"family,omitempty"`
	Versions []Version `json:"versions,omitempty"` // sorted by From
	Told     []Told    `json:"told,omitempty"`     // sorted by Program and Number
}

// Version is a state of an object in the API server, between two writes.
type Version struct {
	RV   string  `json:"rv"`
	UID  string  `json:"uid,omitempty"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
	// Late is true if the version may be older than From, which is when it was first seen.
	Late bool `json:"late,omitempty"`
	// Mark is the request that wrote the version.
	Mark int `json:"mark"`
	// Created is true for the first version of an object whose creation was seen; Deleting is true while a deletion waits for finalizers
	// or for a grace period; Gone is true for the time without an object that follows a deletion.
	Created  bool   `json:"created,omitempty"`
	Deleting bool   `json:"deleting,omitempty"`
	Gone     bool   `json:"gone,omitempty"`
	Changed  string `json:"changed,omitempty"` // in what it differs from the version before, in a few words; "" if that is not known
}

// Told is what the watches of a program, or of one of its processes, have told it of an object.
type Told struct {
	Program int    `json:"program"`
	Number  int    `json:"number,omitempty"` // as in Mark
	Any     bool   `json:"any,omitempty"`    // the program has many processes: what any of them has been told
	Spans   []Span `json:"spans"`            // sorted by From, without gaps
}

// Span is a time during which a program knew the same version of an object, and the API server had the same.
type Span struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Knew int     `json:"knew"` // the newest version that the program had been told of; -1 if it knew of no object
	Had  int     `json:"had"`  // the version that the API server had
	// Lag is for how long the program was behind all in all, with a watch, from the first version that it had not been told of until it had
	// been told of all; 0 if it was not behind.
	Lag float64 `json:"lag,omitempty"`
	// Off is true while the program had no watch that would have told it. It may have been disconnected, or have ended.
	Off bool `json:"off,omitempty"`
}

// Outcome is how a request ended, and what a drawing distinguishes.
type Outcome string

// The outcomes of requests.
const (
	Read      Outcome = "read"     // it succeeded
	Wrote     Outcome = "wrote"    // it changed the object
	NoOp      Outcome = "no-op"    // a write that succeeded and changed nothing, or a dry run
	Conflict  Outcome = "conflict" // 409: the object had changed, or existed already
	NotFound  Outcome = "missing"  // 404
	Refused   Outcome = "refused"  // any other status from 400
	Lost      Outcome = "lost"     // there was no answer, or it was cut off
	GaveUp    Outcome = "gave up"  // the client went away before it had the whole response
	StillOpen Outcome = "open"     // a watch that had not ended
)

// Mark is a request.
type Mark struct {
	ID       int64   `json:"id"` // of the request, in its recording
	Lane     int     `json:"lane"`
	Program  int     `json:"program"`
	Number   int     `json:"number,omitempty"` // of the process, from 1, if several of the program can be told apart
	Start    float64 `json:"start"`
	End      float64 `json:"end"`
	Verb     string  `json:"verb"`
	What     string  `json:"what"` // resource and subresource
	Outcome  Outcome `json:"outcome"`
	Status   int     `json:"status,omitempty"`
	Error    string  `json:"error,omitempty"`
	Fault    string  `json:"fault,omitempty"` // what was done to it on purpose
	URI      string  `json:"uri"`
	Who      string  `json:"who,omitempty"`
	Sent     int64   `json:"sent,omitempty"`
	Received int64   `json:"received,omitempty"`
	RVBefore string  `json:"rvBefore,omitempty"`
	RVAfter  string  `json:"rvAfter,omitempty"`

	Cause *Cause `json:"cause,omitempty"` // of a write
	Stale *Stale `json:"stale,omitempty"` // of a write by a program that was behind
	// Differs says that another run has no such write in this step. See [Compare].
	Differs bool `json:"differs,omitempty"`
}

// Cause is what a program knew and had not acted on when it wrote. See [Rule].
type Cause struct {
	Rule   Rule  `json:"rule"`
	Mark   int   `json:"mark"`             // the failed request, or the list; -1 for events
	Events []int `json:"events,omitempty"` // the candidates, the newest first
	More   int   `json:"more,omitempty"`   // further candidates
}

// Rule says how a cause was inferred. The rules are tried in the order of the constants.
type Rule string

// The rules.
const (
	Retry      Rule = "retry"    // the program's last request for this object failed, and no event about it came after
	OfObject   Rule = "object"   // the last event about this object, if it came after the program's last successful write to it
	FirstList  Rule = "list"     // nothing was written since a list of the program ended, and no event came since
	OfAnything Rule = "anything" // the last event about each object that came since the program's last write
	Unknown    Rule = "nothing"  // nothing that is in the recording
	mostEvents      = 8          // candidates in a cause
)

// Stale says that a program wrote while it had not been told of everything.
type Stale struct {
	Knew string  `json:"knew"` // the newest version of the object that the program had been told of, "" if none
	Had  string  `json:"had"`  // what the API server had; "" if the object was gone
	For  float64 `json:"for"`  // since when there was a version that the program had not been told of, until it wrote
	// Own is true if all versions that it had not been told of were its own writes.
	Own bool `json:"own,omitempty"`
	// Others are the lanes of other objects of the same resource of which the program had not been told everything that others had written.
	Others []int `json:"others,omitempty"`
	// Text says all this in words.
	Text string `json:"text"`
}

// Event is an event of a watch.
type Event struct {
	Lane    int     `json:"lane"`
	Program int     `json:"program"`
	Came    float64 `json:"came"` // from the API server
	Told    float64 `json:"told"` // to the program
	Type    string  `json:"type"` // ADDED, MODIFIED, DELETED or ERROR
	Version int     `json:"version"`
	Bytes   int     `json:"bytes,omitempty"`
}

package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Injection is one thing that the recorder did to a request on purpose.
type Injection struct {
	Kind InjectionKind `json:"kind"`

	// Duration belongs to Delayed, ControllerFrozen, Disconnected, NoAnswer, AnsweredLate and EventsLate; for
	// MachineRebooted and PowerCut it is how long the machine was to be off, and 0 if the fault did not say. It is 0 for
	// all other kinds. In JSON it is "ms", in milliseconds.
	Duration time.Duration `json:"-"`
	// Status is the HTTP status of Refused, and 0 for all other kinds.
	Status int `json:"status,omitempty"`
	// After belongs to ControllerFrozen, MachineRebooted, PowerCut, ControllerKilled and ControlPlaneKilled: true if the
	// API server had answered the request by then, false if the request had not been sent on.
	After bool `json:"after,omitempty"`
	// Event is the number, from 1, of the event that WatchCut, WatchExpired, WatchUnobserved or WatchHeld
	// was for. Bookmarks do not count. It is 0 for all other kinds.
	Event int `json:"event,omitempty"`
	// Skipped says why the recorder could not do it after all; it is "" if it was done.
	Skipped string `json:"skipped,omitempty"`
	// SideEffect is true if nobody asked for it: it came of another injection, which was skipped in the end. While the recorder
	// waits for the event that is to replace one that is WatchUnobserved, it delays events.
	SideEffect bool `json:"sideEffect,omitempty"`
}

// InjectionKind is what was done to the request, and to whom.
type InjectionKind string

// The kinds of injections, in the order in which a request meets them.
const (
	ControllerStopped  InjectionKind = "controller-stopped"   // the controller was asked to stop, and the request was sent on
	Delayed            InjectionKind = "delayed"              // the request was held back for Duration
	ControllerFrozen   InjectionKind = "controller-frozen"    // see After; the controller did not run for Duration
	MachineRebooted    InjectionKind = "machine-rebooted"     // see After; a machine was told to reboot, and went off
	PowerCut           InjectionKind = "power-cut"            // see After; a machine lost its power, and booted again later
	Disconnected       InjectionKind = "disconnected"         // all connections broke, and for Duration no client could connect
	DoneLate           InjectionKind = "done-late"            // the connection broke, and the request was sent on afterwards
	NoAnswer           InjectionKind = "no-answer"            // the request was not sent on; after Duration without an answer, the connection broke
	RequestLost        InjectionKind = "request-lost"         // the connection broke, and the request was not sent on
	ReplyLost          InjectionKind = "reply-lost"           // the API server answered, and the client did not get the answer
	ControllerKilled   InjectionKind = "controller-killed"    // see After
	ControlPlaneKilled InjectionKind = "control-plane-killed" // see After
	Refused            InjectionKind = "refused"              // the recorder answered with Status
	AnsweredLate       InjectionKind = "answered-late"        // the answer reached the client Duration after it came
	EventsLate         InjectionKind = "events-late"          // each event reached the client Duration after it came
	WatchCut           InjectionKind = "watch-cut"            // the watch broke off before Event
	WatchExpired       InjectionKind = "watch-expired"        // in place of Event, the client got 410 Gone
	WatchUnobserved    InjectionKind = "watch-unobserved"     // Event was left out when the object's next one had come
	WatchHeld          InjectionKind = "watch-held"           // Event and all that followed were held back
	NoBookmarks        InjectionKind = "no-bookmarks"         // bookmarks were left out
)

// injectionTexts has every kind, in the order of the constants.
var injectionTexts = []struct {
	kind InjectionKind
	text func(Injection) string
}{
	{ControllerStopped, func(Injection) string { return "controller told to stop before it" }},
	{Delayed, func(i Injection) string { return fmt.Sprintf("delayed by %s", i.Duration) }},
	{ControllerFrozen, func(i Injection) string {
		return fmt.Sprintf("controller frozen for %s %s", i.Duration, i.beforeOrAfter())
	}},
	{MachineRebooted, func(i Injection) string { return "machine rebooted " + i.offFor() + i.beforeOrAfter() }},
	{PowerCut, func(i Injection) string { return "power cut " + i.offFor() + i.beforeOrAfter() }},
	{Disconnected, func(i Injection) string { return fmt.Sprintf("nobody can connect for %s", i.Duration) }},
	{DoneLate, func(Injection) string { return "done when the client had gone" }},
	{NoAnswer, func(i Injection) string { return fmt.Sprintf("no answer for %s", i.Duration) }},
	{RequestLost, func(Injection) string { return "request lost" }},
	{ReplyLost, func(Injection) string { return "reply lost" }},
	{ControllerKilled, func(i Injection) string { return "controller killed " + i.beforeOrAfter() }},
	{ControlPlaneKilled, func(i Injection) string { return "control plane killed " + i.beforeOrAfter() }},
	{Refused, func(i Injection) string { return fmt.Sprintf("refused with %d", i.Status) }},
	{AnsweredLate, func(i Injection) string { return fmt.Sprintf("answered %s late", i.Duration) }},
	{EventsLate, func(i Injection) string { return fmt.Sprintf("events late by %s", i.Duration) }},
	{WatchCut, func(i Injection) string { return fmt.Sprintf("cut at event %d", i.Event) }},
	{WatchExpired, func(i Injection) string { return fmt.Sprintf("expired at event %d", i.Event) }},
	{WatchUnobserved, func(i Injection) string { return fmt.Sprintf("unobserved at event %d", i.Event) }},
	{WatchHeld, func(i Injection) string { return fmt.Sprintf("held at event %d", i.Event) }},
	{NoBookmarks, func(Injection) string { return "no bookmarks" }},
}

// IsOnEvents says whether it is done to the events of a watch.
func (i Injection) IsOnEvents() bool { return i.Kind.order() >= EventsLate.order() }

// IsOnAnswer says whether it is done to the API server's answer, or when it has come.
func (i Injection) IsOnAnswer() bool { return i.After || i.Kind == ReplyLost || i.Kind == AnsweredLate }

// IsInstead says whether it keeps the request from the API server, for the moment or for good.
func (i Injection) IsInstead() bool {
	return i.Kind.order() >= Disconnected.order() && i.Kind.order() <= Refused.order() && !i.IsOnAnswer()
}

func (i Injection) beforeOrAfter() string {
	if i.After {
		return "after it"
	}
	return "before it"
}

func (i Injection) offFor() string {
	if i.Duration == 0 {
		return ""
	}
	return fmt.Sprintf("for %s ", i.Duration)
}

// String says in a few words what was done, such as "refused with 500".
func (i Injection) String() string {
	text := string(i.Kind)
	if at := i.Kind.order(); at < len(injectionTexts) {
		text = injectionTexts[at].text(i)
	}
	if i.Skipped != "" {
		text += ": not done, as " + i.Skipped
	}
	return text
}

// order is the position of a kind among all kinds, or after them for one that is not known.
func (k InjectionKind) order() int {
	for at, known := range injectionTexts {
		if known.kind == k {
			return at
		}
	}
	return len(injectionTexts)
}

// SortInjections sorts injections in place, in the order in which a request meets them, and returns them.
func SortInjections(injections []Injection) []Injection {
	slices.SortStableFunc(injections, func(a, b Injection) int { return cmp.Compare(a.Kind.order(), b.Kind.order()) })
	return injections
}

// IsDisturbed says whether the recorder did anything to the request on purpose. While a watch is open, it may be going to.
func (r Request) IsDisturbed() bool {
	return slices.ContainsFunc(r.Injected, func(i Injection) bool { return i.Skipped == "" })
}

// MetFault is like IsDisturbed, but ignores side effects: it says whether anything was done that a fault asked for.
func (r Request) MetFault() bool {
	return slices.ContainsFunc(r.Injected, func(i Injection) bool { return i.Skipped == "" && !i.SideEffect })
}

// isDelay says whether the injection only makes the answer come later.
func (i Injection) isDelay() bool { return i.Kind == Delayed || i.Kind == AnsweredLate }

// IsOnlySlow says whether the request or its answer was delayed on purpose, and nothing else was done to it.
func (r Request) IsOnlySlow() bool {
	return r.IsDisturbed() && !slices.ContainsFunc(r.Injected, func(i Injection) bool { return !i.isDelay() && i.Skipped == "" })
}

// OnlyToldToStop says whether the controller was asked to stop at this request, or was being stopped already, and nothing
// else was done to the request but delay it. Whether such a request is answered is then up to the controller.
func (r Request) OnlyToldToStop() bool {
	stopped := false
	for _, i := range r.Injected {
		if i.Kind != ControllerStopped && !i.isDelay() {
			return false
		}
		stopped = stopped || i.Kind == ControllerStopped
	}
	return stopped
}

// Injections says in words what was done to the request on purpose, or "".
func (r Request) Injections() string {
	var texts []string
	for _, i := range r.Injected {
		texts = append(texts, i.String())
	}
	return strings.Join(texts, ", ")
}

// injectionJSON is an Injection with its duration in milliseconds.
type injectionJSON struct {
	*plainInjection
	Milliseconds float64 `json:"ms,omitempty"`
}

type plainInjection Injection // without methods

// MarshalJSON writes Duration as milliseconds.
func (i Injection) MarshalJSON() ([]byte, error) {
	return marshal(injectionJSON{(*plainInjection)(&i), milliseconds(i.Duration)})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (i *Injection) UnmarshalJSON(data []byte) error {
	parsed := injectionJSON{plainInjection: (*plainInjection)(i)}
	if err := json.Unmarshal(data, &parsed); err != nil {
		return err
	}
	i.Duration = ofMilliseconds(parsed.Milliseconds)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ofMilliseconds(ms float64) time.Duration {
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}

package apiproxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"example.com/controllers/harness/history"
)

// Fault is something that goes wrong on purpose: an Effect on the requests that Match. Several faults may
// apply to the same request. Then their delays add up, the longest Late and Down count, and of every other effect
// the first fault that has it counts.
type Fault struct {
	Match
	Effect
}

// Match says which requests a fault is for.
type Match struct {
	// These are compared with the fields of a [history.Request]; "" matches any request. Name is the name in the
	// request's path, which has none in a create. Agent is a prefix of the User-Agent.
	Verb, Group, Resource, Subresource, Namespace, Name, Agent string

	// From and To choose by number among the requests that match all of the above: both are inclusive, and the
	// requests are numbered from 1 as they arrive. From 0 means from the first; To 0 means without end.
	From, To int
}

// Effect is what a fault does to a request. The fields that name an effect of their own (Refuse, Delay, Late, Lost,
// Down, Kill, Crash, Stop, Watch) may be combined.
type Effect struct {
	// Refuse is the HTTP status, 400 to 599, that the proxy answers with, together with a matching Status object.
	// The request does not reach the API server, unless Lost is LostReply.
	Refuse int
	// RetryAfter is the Retry-After header of a refusal with 429 or 5xx, rounded up to whole seconds. Without it,
	// client-go does not retry by itself.
	RetryAfter time.Duration

	// Delay is how long the proxy waits before it sends the request on.
	Delay time.Duration

	// Late is how long the proxy holds back each event of a watch. Events keep their order.
	Late time.Duration

	// Lost is what gets lost: LostRequest, LostReply or LostLate. The client sees its connection break, and cannot
	// tell which of them it was. LostReply with Refuse does not break the connection but answers with that status:
	// with 504, the client is told of a timeout although the API server has done what it was asked.
	Lost string

	// Down is for how long no client can connect. All connections break when the request arrives, its own included,
	// and the API server does not get the request.
	Down time.Duration

	// Kill and Crash call Options.Kill, which kills the controller, and Options.Crash, which kills the control
	// plane: Before the request is sent on, or After the API server has answered it. Either way the client gets no
	// answer.
	Kill, Crash string

	// Stop calls Options.Stop, which asks the controller to shut down, Before the request is sent on. The request
	// goes on: a controller that is asked to stop should finish its in-flight work.
	Stop string

	// For is how long the fault lasts, from the first request that it applies to; 0 means without end.
	For time.Duration

	// Watch is what happens to a watch: one of the Watch constants. Event is the number of the event at which it
	// happens, from 1; 0 means the first. Bookmarks do not count, because the API server sends them when it likes.
	Watch string
	Event int
}

// The values of Effect.Lost, Kill, Crash, Stop and Watch; "" means no such effect.
const (
	LostRequest = "request" // the API server never hears of it
	LostReply   = "reply"   // the API server does what it was asked, and nobody hears of that
	LostLate    = "late"    // so it does, but Delay after the client's request broke off

	Before = "before"
	After  = "after"

	WatchCut         = "cut"          // it breaks off before the event
	WatchExpired     = "expired"      // instead of the event comes an ERROR: 410, the resourceVersion is too old
	WatchUnobserved  = "unobserved"   // the event waits, and all after it, until the object's next one replaces it
	WatchHeld        = "held"         // the event waits, and all after it, until Proxy.Release
	WatchNoBookmarks = "no-bookmarks" // none comes, but the one that ends the initial events
)

// word is a key that says which requests a fault befalls.
type word struct {
	key   string
	field func(*Fault) *string
	of    func(history.Request) string
}

var words = []word{
	{"verb", func(f *Fault) *string { return &f.Verb }, func(r history.Request) string { return r.Verb }},
	{"group", func(f *Fault) *string { return &f.Group }, func(r history.Request) string { return r.Group }},
	{"resource", func(f *Fault) *string { return &f.Resource }, func(r history.Request) string { return r.Resource }},
	{"subresource", func(f *Fault) *string { return &f.Subresource }, func(r history.Request) string { return r.Subresource }},
	{"namespace", func(f *Fault) *string { return &f.Namespace }, func(r history.Request) string { return r.Namespace }},
	{"name", func(f *Fault) *string { return &f.Name }, func(r history.Request) string { return r.Name }},
	{"agent", func(f *Fault) *string { return &f.Agent }, func(r history.Request) string { return r.Agent }},
}

// durations are the keys with a duration.
var durations = []struct {
	key   string
	field func(*Fault) *time.Duration
}{
	{"retry-after", func(f *Fault) *time.Duration { return &f.RetryAfter }},
	{"delay", func(f *Fault) *time.Duration { return &f.Delay }},
	{"late", func(f *Fault) *time.Duration { return &f.Late }},
	{"down", func(f *Fault) *time.Duration { return &f.Down }},
	{"for", func(f *Fault) *time.Duration { return &f.For }},
}

// choices are the keys with one of a few words.
var choices = []struct {
	key   string
	field func(*Fault) *string
	words []string
}{
	{"lost", func(f *Fault) *string { return &f.Lost }, []string{LostRequest, LostReply, LostLate}},
	{"kill", func(f *Fault) *string { return &f.Kill }, []string{Before, After}},
	{"crash", func(f *Fault) *string { return &f.Crash }, []string{Before, After}},
	{"stop", func(f *Fault) *string { return &f.Stop }, []string{Before}},
	{"watch", func(f *Fault) *string { return &f.Watch },
		[]string{WatchCut, WatchExpired, WatchUnobserved, WatchHeld, WatchNoBookmarks}},
}

// ParseFault reads a fault from text such as "verb=delete,resource=pods,nth=2,refuse=500" or
// "verb=watch,resource=pods,event=3,watch=cut". nth is a number, a range as in 1-6, or one without an end as
// in 3-; without it, every request that matches is meant. The other keys are the fields in lower case, and
// retry-after.
func ParseFault(text string) (Fault, error) {
	f, err := parseFault(text)
	if err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}
	return f, nil
}

func parseFault(text string) (Fault, error) {
	var f Fault
	given := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || value == "" {
			return f, fmt.Errorf("%q is not of the form key=value", part)
		}
		if given[key] {
			return f, fmt.Errorf("%s is given twice", key)
		}
		given[key] = true
		if err := f.set(key, value); err != nil {
			return f, err
		}
	}
	return f, f.check()
}

func (f *Fault) set(key, value string) (err error) {
	for _, w := range words {
		if w.key == key {
			*w.field(f) = value
			return nil
		}
	}
	for _, d := range durations {
		if d.key == key {
			duration, err := time.ParseDuration(value)
			if err != nil || duration <= 0 {
				return fmt.Errorf("%s=%s is not a duration such as 2s", key, value)
			}
			*d.field(f) = duration
			return nil
		}
	}
	for _, c := range choices {
		if c.key == key {
			*c.field(f) = value
			return nil
		}
	}
	switch key {
	case "event":
		if f.Event, err = strconv.Atoi(value); err != nil || f.Event < 1 {
			return fmt.Errorf("event=%s is not a number from 1", value)
		}
	case "refuse":
		if f.Refuse, err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("refuse=%s is not an HTTP status such as 500", value)
		}
	case "nth":
		if f.From, f.To, err = parseRange(value); err != nil {
			return fmt.Errorf("nth=%s is not a number, or a range such as 1-6 or 3-, from 1", value)
		}
	default:
		var keys []string
		for _, w := range words {
			keys = append(keys, w.key)
		}
		keys = append(keys, "nth", "refuse")
		for _, d := range durations {
			keys = append(keys, d.key)
		}
		for _, c := range choices {
			keys = append(keys, c.key)
		}
		keys = append(keys, "event")
		return fmt.Errorf("there is no key %q; there are %s", key, strings.Join(keys, ", "))
	}
	return nil
}

func parseRange(text string) (from, to int, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if from, err = strconv.Atoi(first); err != nil {
		return 0, 0, err
	}
	switch {
	case !isRange:
		to = from
	case last != "":
		if to, err = strconv.Atoi(last); err != nil {
			return 0, 0, err
		}
		if to < from {
			return 0, 0, errors.New("it ends before it begins")
		}
	}
	if from < 1 {
		return 0, 0, errors.New("it begins before 1")
	}
	return from, to, nil
}

// String is the text that [ParseFault] reads.
func (f Fault) String() string {
	var parts []string
	add := func(key string, value any) { parts = append(parts, fmt.Sprintf("%s=%v", key, value)) }
	for _, w := range words {
		if value := *w.field(&f); value != "" {
			add(w.key, value)
		}
	}
	switch from := max(f.From, 1); {
	case f.From == 0 && f.To == 0:
	case f.To == 0:
		add("nth", fmt.Sprintf("%d-", from))
	case f.To == from:
		add("nth", from)
	default:
		add("nth", fmt.Sprintf("%d-%d", from, f.To))
	}
	if f.Refuse != 0 {
		add("refuse", f.Refuse)
	}
	for _, d := range durations {
		if value := *d.field(&f); value != 0 {
			add(d.key, value)
		}
	}
	for _, c := range choices {
		if value := *c.field(&f); value != "" {
			add(c.key, value)
		}
	}
	if f.Event != 0 {
		add("event", f.Event)
	}
	return strings.Join(parts, ",")
}

// check says what is wrong with a fault.
func (f Fault) check() error {
	for _, d := range durations {
		if value := *d.field(&f); value < 0 {
			return fmt.Errorf("%s is %s; it must not be negative", d.key, value)
		}
	}
	wrong := f.Refuse != 0 || f.Delay != 0 || f.Late != 0 || f.Down != 0
	for _, c := range choices {
		value := *c.field(&f)
		wrong = wrong || value != ""
		if value != "" && !slices.Contains(c.words, value) {
			return fmt.Errorf("%s=%s is not one of %s", c.key, value, strings.Join(c.words, ", "))
		}
	}
	switch {
	case !wrong:
		return errors.New("it does not say what is to go wrong; give one of refuse=STATUS, delay=DURATION, " +
			"late=DURATION, down=DURATION, lost=request, reply or late, watch=cut, expired, unobserved, held or no-bookmarks")
	case f.Watch != "" && f.Verb != "watch":
		return fmt.Errorf("watch=%s is for watches; add verb=watch", f.Watch)
	case f.Event < 0 || f.Event != 0 && (f.Watch == "" || f.Watch == WatchNoBookmarks):
		return errors.New("event is the number, from 1, of the event at which watch=cut, expired, unobserved or held happens")
	case (f.Lost == LostReply || f.Lost == LostLate) && f.Verb == "watch":
		return fmt.Errorf("lost=%s is not for watches; give lost=request or watch=cut", f.Lost)
	case f.Lost == LostLate && f.Refuse != 0:
		return errors.New("with lost=late there is no answer; take away refuse, or give lost=reply")
	case f.Lost == LostRequest && f.Refuse != 0:
		return errors.New("with lost=request there is no answer; take away refuse, or give lost=reply")
	case f.Refuse != 0 && (f.Refuse < 400 || f.Refuse > 599):
		return fmt.Errorf("refuse is %d; it must be an HTTP status from 400 to 599", f.Refuse)
	case f.RetryAfter != 0 && f.Refuse != http.StatusTooManyRequests && f.Refuse < 500:
		return errors.New("retry-after is for refusals with 429 or 5xx")
	case f.Late != 0 && f.Verb != "watch":
		return errors.New("late is for watches; add verb=watch")
	case f.From < 0 || f.To < 0 || f.To != 0 && f.To < f.From:
		return fmt.Errorf("there is no request from number %d to number %d", f.From, f.To)
	}
	return nil
}

// matches says whether the fault is for requests like this one.
func (f *Fault) matches(r history.Request) bool {
	return !slices.ContainsFunc(words, func(w word) bool {
		wanted, is := *w.field(f), w.of(r)
		if w.key == "agent" {
			return !strings.HasPrefix(is, wanted)
		}
		return wanted != "" && wanted != is
	})
}

// counted is a fault and how many requests have matched it.
type counted struct {
	Fault
	count atomic.Int64
	first atomic.Int64 // when it befell one first, in nanoseconds of Unix; 0 before
}

// over says whether the time is over for which the fault befalls requests. It begins with the first call.
func (f *counted) over() bool {
	now := time.Now().UnixNano()
	f.first.CompareAndSwap(0, now)
	return f.For != 0 && now-f.first.Load() > int64(f.For)
}

// injection is the decision what to do to one request: what all faults that apply to it come to.
type injection struct {
	delay, late, down time.Duration
	refusal           *Fault // or nil
	lost, kill, crash string
	stop              bool
	watch             *Fault // or nil
	noBookmarks       bool
}

// inject counts a request with every fault that matches it, and returns what to do to it.
func (p *Proxy) inject(r history.Request) injection {
	var todo injection
	for _, f := range p.currentFaults() {
		if !f.matches(r) {
			continue
		}
		n := f.count.Add(1)
		if n < int64(f.From) || f.To != 0 && n > int64(f.To) || f.over() {
			continue
		}
		todo.delay += f.Delay
		todo.late = max(todo.late, f.Late)
		todo.down = max(todo.down, f.Down)
		if f.Refuse != 0 && todo.refusal == nil {
			todo.refusal = &f.Fault
		}
		todo.lost = cmp.Or(todo.lost, f.Lost)
		todo.kill = cmp.Or(todo.kill, f.Kill)
		todo.crash = cmp.Or(todo.crash, f.Crash)
		todo.stop = todo.stop || f.Stop != ""
		switch {
		case f.Watch == WatchNoBookmarks:
			todo.noBookmarks = true
		case f.Watch != "" && todo.watch == nil:
			todo.watch = &f.Fault
		}
	}
	return todo
}

// editsWatch says whether something is to be done to the events.
func (i injection) editsWatch() bool { return i.late != 0 || i.watch != nil || i.noBookmarks }

// losesReply says whether the client is not to get the API server's answer.
func (i injection) losesReply() bool {
	return i.lost == LostReply || i.lost == LostLate || i.kill == After || i.crash == After
}

// watchKinds is how what a fault does to a watch is recorded.
var watchKinds = map[string]history.InjectionKind{
	WatchCut: history.WatchCut, WatchExpired: history.WatchExpired, WatchUnobserved: history.WatchUnobserved, WatchHeld: history.WatchHeld,
}

// injected is the injection as it is recorded. skipped says why nothing is done to the events of the watch, or "".
func (i injection) injected(skipped string) []history.Injection {
	var all []history.Injection
	add := func(is bool, one history.Injection) {
		if is {
			all = append(all, one)
		}
	}
	add(i.stop, history.Injection{Kind: history.ControllerStopped})
	add(i.delay != 0, history.Injection{Kind: history.Delayed, Duration: i.delay})
	add(i.down != 0, history.Injection{Kind: history.Disconnected, Duration: i.down})
	add(i.lost == LostLate, history.Injection{Kind: history.DoneLate})
	add(i.lost == LostRequest, history.Injection{Kind: history.RequestLost})
	add(i.lost == LostReply, history.Injection{Kind: history.ReplyLost})
	add(i.kill != "", history.Injection{Kind: history.ControllerKilled, After: i.kill == After})
	add(i.crash != "", history.Injection{Kind: history.ControlPlaneKilled, After: i.crash == After})
	if i.refusal != nil {
		add(true, history.Injection{Kind: history.Refused, Status: i.refusal.Refuse})
	}
	add(i.late != 0, history.Injection{Kind: history.EventsLate, Duration: i.late, Skipped: skipped})
	if i.watch != nil {
		add(true, history.Injection{Kind: watchKinds[i.watch.Watch], Event: max(1, i.watch.Event), Skipped: skipped})
	}
	add(i.noBookmarks, history.Injection{Kind: history.NoBookmarks, Skipped: skipped})
	return all
}

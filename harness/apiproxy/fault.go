package apiproxy

import (
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

// Fault is something that goes wrong on purpose: which requests it befalls, and what befalls them.
// Several faults may befall the same request. Delays add up, the latest lateness wins, and so does the
// first refusal.
type Fault struct {
	// What the request is, as in a [history.Request]; "" is for any. Name is that of the request's path,
	// which has none in a create. Agent is how the User-Agent begins.
	Verb, Group, Resource, Subresource, Namespace, Name, Agent string

	// From and To choose among the requests that match, by number, from 1, inclusive, in the order in
	// which they come. From 0 is the first; To 0 is no end.
	From, To int

	// Refuse is the HTTP status, 400 to 599, to answer with, and a matching Status object. The request
	// never reaches the API server.
	Refuse int
	// RetryAfter, of a refusal with 429 or 5xx, is when the client is told to try again, in whole seconds.
	// Without it, client-go does not retry by itself.
	RetryAfter time.Duration

	// Delay is how long the request waits before it is sent on.
	Delay time.Duration

	// Late, of a watch, is how long after it came each event reaches the client. They keep their order.
	Late time.Duration
}

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
}

// ParseFault reads a fault from text such as "verb=delete,resource=pods,nth=2,refuse=500" or
// "verb=watch,resource=pods,late=2s". nth is a number, a range as in 1-6, or one without an end as in 3-;
// without it, every request that matches is meant. The other keys are the fields in lower case, and
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
	switch key {
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
	return strings.Join(parts, ",")
}

// check says what is wrong with a fault.
func (f Fault) check() error {
	for _, d := range durations {
		if value := *d.field(&f); value < 0 {
			return fmt.Errorf("%s is %s; it must not be negative", d.key, value)
		}
	}
	switch {
	case f.Refuse == 0 && f.Delay == 0 && f.Late == 0:
		return errors.New("it says not what is to go wrong: give refuse=STATUS, delay=DURATION or late=DURATION")
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
}

// plan is what is to go wrong with one request.
type plan struct {
	delay, late time.Duration
	refusal     *Fault // or nil
}

// plan counts a request and returns what is to go wrong with it.
func (p *Proxy) plan(r history.Request) plan {
	var todo plan
	for _, f := range p.currentFaults() {
		if !f.matches(r) {
			continue
		}
		n := f.count.Add(1)
		if n < int64(f.From) || f.To != 0 && n > int64(f.To) {
			continue
		}
		todo.delay += f.Delay
		todo.late = max(todo.late, f.Late)
		if f.Refuse != 0 && todo.refusal == nil {
			todo.refusal = &f.Fault
		}
	}
	return todo
}

// String says it in the words of the recording.
func (p plan) String() string {
	var parts []string
	if p.delay != 0 {
		parts = append(parts, fmt.Sprintf("delayed by %s", p.delay))
	}
	if p.refusal != nil {
		parts = append(parts, fmt.Sprintf("refused with %d", p.refusal.Refuse))
	}
	if p.late != 0 {
		parts = append(parts, fmt.Sprintf("events late by %s", p.late))
	}
	return strings.Join(parts, ", ")
}

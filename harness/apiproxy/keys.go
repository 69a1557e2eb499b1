package apiproxy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/controllers/harness/history"
)

// key is a key in the text of a fault, such as "refuse", and the field that it stands for.
type key struct {
	name  string
	text  func(Fault) string                 // the field's value; "" if it is zero
	parse func(f *Fault, value string) error // sets the field
	check func(Fault) error                  // says what is wrong with the field; nil if nothing can be

	// combine and record are set if the key is an effect of its own, and nil if it chooses requests or is a detail of
	// an effect. combine adds the effect to those of earlier faults; record says how the history has it, which is
	// nothing if the injection lacks the effect.
	combine func(into *injection, f Fault)
	record  func(injection) []history.Injection
	// onEvents is true if the effect is on the events of a watch. Such a fault must have verb=watch.
	onEvents bool
}

// keys has every key, in the order of [Fault.String]. This table and the code that carries an effect out are all that
// the proxy knows of an effect.
var keys = []key{
	word("verb", func(f *Fault) *string { return &f.Verb }, checkVerb),
	word("group", func(f *Fault) *string { return &f.Group }, nil),
	word("resource", func(f *Fault) *string { return &f.Resource }, nil),
	word("subresource", func(f *Fault) *string { return &f.Subresource }, nil),
	word("namespace", func(f *Fault) *string { return &f.Namespace }, nil),
	word("name", func(f *Fault) *string { return &f.Name }, nil),
	word("agent", func(f *Fault) *string { return &f.Agent }, nil),
	word("program", func(f *Fault) *string { return &f.Program }, nil),
	nthKey,
	refuseKey,
	duration("retry-after", func(e *Effect) *time.Duration { return &e.RetryAfter }, nil, ""),
	duration("delay", func(e *Effect) *time.Duration { return &e.Delay }, sum, history.Delayed),
	duration("answer-late", func(e *Effect) *time.Duration { return &e.AnswerLate }, sum, history.AnsweredLate),
	duration("hang", func(e *Effect) *time.Duration { return &e.Hang }, longest, history.NoAnswer),
	duration("late", func(e *Effect) *time.Duration { return &e.Late }, longest, history.EventsLate).affectsEvents(),
	duration("down", func(e *Effect) *time.Duration { return &e.Down }, longest, history.Disconnected),
	duration("for", func(e *Effect) *time.Duration { return &e.For }, nil, ""),
	choice("lost", func(e *Effect) *string { return &e.Lost },
		option{LostRequest, history.Injection{Kind: history.RequestLost}},
		option{LostReply, history.Injection{Kind: history.ReplyLost}},
		option{LostLate, history.Injection{Kind: history.DoneLate}}),
	choice("kill", func(e *Effect) *string { return &e.Kill },
		option{Before, history.Injection{Kind: history.ControllerKilled}},
		option{After, history.Injection{Kind: history.ControllerKilled, After: true}}),
	choice("crash", func(e *Effect) *string { return &e.Crash },
		option{Before, history.Injection{Kind: history.ControlPlaneKilled}},
		option{After, history.Injection{Kind: history.ControlPlaneKilled, After: true}}),
	choice("stop", func(e *Effect) *string { return &e.Stop },
		option{Before, history.Injection{Kind: history.ControllerStopped}}),
	choice("freeze", func(e *Effect) *string { return &e.Freeze },
		option{Before, history.Injection{Kind: history.ControllerFrozen}},
		option{After, history.Injection{Kind: history.ControllerFrozen, After: true}}).lasts(freezeFor, DefaultFreeze),
	duration("freeze-for", freezeFor, nil, ""),
	choice("reboot", func(e *Effect) *string { return &e.Reboot },
		option{Before, history.Injection{Kind: history.MachineRebooted}},
		option{After, history.Injection{Kind: history.MachineRebooted, After: true}}).lasts(offFor, 0),
	choice("power-cut", func(e *Effect) *string { return &e.PowerCut },
		option{Before, history.Injection{Kind: history.PowerCut}},
		option{After, history.Injection{Kind: history.PowerCut, After: true}}).lasts(offFor, 0),
	duration("off-for", offFor, nil, ""),
	watchKey,
	eventKey,
}

func (k key) affectsEvents() key {
	k.onEvents = true
	return k
}

// word is a key whose value is any text.
func word(name string, field func(*Fault) *string, check func(Fault) error) key {
	return key{
		name:  name,
		text:  func(f Fault) string { return *field(&f) },
		parse: func(f *Fault, value string) error { *field(f) = value; return nil },
		check: check,
	}
}

// lasts makes a choice last as long as another key says, or else as long as usual.
func (k key) lasts(long func(*Effect) *time.Duration, usual time.Duration) key {
	combine, record := k.combine, k.record
	k.combine = func(into *injection, f Fault) {
		if k.text(Fault{Effect: into.Effect}) == "" && k.text(f) != "" {
			*long(&into.Effect) = cmp.Or(*long(&f.Effect), usual)
		}
		combine(into, f)
	}
	k.record = func(i injection) []history.Injection {
		all := record(i)
		for at := range all {
			all[at].Duration = *long(&i.Effect)
		}
		return all
	}
	return k
}

func freezeFor(e *Effect) *time.Duration { return &e.FreezeFor }
func offFor(e *Effect) *time.Duration    { return &e.OffFor }

func sum(a, b time.Duration) time.Duration     { return a + b }
func longest(a, b time.Duration) time.Duration { return max(a, b) }

// duration is a key whose value is a positive duration. If it is an effect, it combines with others as combine says,
// and is recorded as kind.
func duration(name string, field func(*Effect) *time.Duration, combine func(a, b time.Duration) time.Duration, kind history.InjectionKind) key {
	k := key{
		name: name,
		text: func(f Fault) string {
			if *field(&f.Effect) == 0 {
				return ""
			}
			return field(&f.Effect).String()
		},
		parse: func(f *Fault, value string) error {
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return fmt.Errorf("%s=%s is not a duration such as 2s", name, value)
			}
			*field(&f.Effect) = d
			return nil
		},
		check: func(f Fault) error {
			if d := *field(&f.Effect); d < 0 {
				return fmt.Errorf("%s is %s; it must not be negative", name, d)
			}
			return nil
		},
	}
	if combine != nil {
		k.combine = func(into *injection, f Fault) {
			*field(&into.Effect) = combine(*field(&into.Effect), *field(&f.Effect))
		}
		k.record = func(i injection) []history.Injection {
			if d := *field(&i.Effect); d != 0 {
				return []history.Injection{{Kind: kind, Duration: d}}
			}
			return nil
		}
	}
	return k
}

// option is one of the values of a choice, and how it is recorded.
type option struct {
	value    string
	recorded history.Injection
}

// choice is an effect whose value is one of a few words. Of several faults, the first one counts.
func choice(name string, field func(*Effect) *string, options ...option) key {
	k := word(name, func(f *Fault) *string { return field(&f.Effect) }, func(f Fault) error {
		var values []string
		for _, o := range options {
			if o.value == *field(&f.Effect) {
				return nil
			}
			values = append(values, o.value)
		}
		if *field(&f.Effect) == "" {
			return nil
		}
		return fmt.Errorf("%s=%s is not one of %s", name, *field(&f.Effect), strings.Join(values, ", "))
	})
	k.combine = func(into *injection, f Fault) {
		*field(&into.Effect) = cmp.Or(*field(&into.Effect), *field(&f.Effect))
	}
	k.record = func(i injection) []history.Injection {
		var all []history.Injection
		for _, o := range options {
			if o.value == *field(&i.Effect) {
				all = append(all, o.recorded)
			}
		}
		return all
	}
	return k
}

// The keys whose values follow rules of their own.
var (
	nthKey = key{
		name: "nth",
		text: func(f Fault) string {
			switch from := max(f.From, 1); {
			case f.From == 0 && f.To == 0:
				return ""
			case f.To == 0:
				return fmt.Sprintf("%d-", from)
			case f.To == from:
				return strconv.Itoa(from)
			default:
				return fmt.Sprintf("%d-%d", from, f.To)
			}
		},
		parse: func(f *Fault, value string) (err error) {
			if f.From, f.To, err = parseRange(value); err != nil {
				return fmt.Errorf("nth=%s is not a number, or a range such as 1-6 or 3-, from 1", value)
			}
			return nil
		},
		check: func(f Fault) error {
			if f.From < 0 || f.To < 0 || f.To != 0 && f.To < f.From {
				return fmt.Errorf("there is no request from number %d to number %d", f.From, f.To)
			}
			return nil
		},
	}

	refuseKey = key{
		name: "refuse",
		text: func(f Fault) string { return nonZero(f.Refuse) },
		parse: func(f *Fault, value string) (err error) {
			if f.Refuse, err = strconv.Atoi(value); err != nil {
				return fmt.Errorf("refuse=%s is not an HTTP status such as 500", value)
			}
			return nil
		},
		check: func(f Fault) error {
			if f.Refuse != 0 && (f.Refuse < 400 || f.Refuse > 599) {
				return fmt.Errorf("refuse is %d; it must be an HTTP status from 400 to 599", f.Refuse)
			}
			return nil
		},
		combine: func(into *injection, f Fault) {
			if into.Refuse == 0 && f.Refuse != 0 {
				into.Refuse, into.RetryAfter, into.refusedBy = f.Refuse, f.RetryAfter, f
			}
		},
		record: func(i injection) []history.Injection {
			if i.Refuse == 0 {
				return nil
			}
			return []history.Injection{{Kind: history.Refused, Status: i.Refuse}}
		},
	}

	// watchKey combines by hand: a watch may go without bookmarks and have something else happen to it.
	watchKey = func() key {
		k := choice("watch", func(e *Effect) *string { return &e.Watch },
			option{WatchCut, history.Injection{Kind: history.WatchCut}},
			option{WatchExpired, history.Injection{Kind: history.WatchExpired}},
			option{WatchUnobserved, history.Injection{Kind: history.WatchUnobserved}},
			option{WatchHeld, history.Injection{Kind: history.WatchHeld}},
			option{WatchNoBookmarks, history.Injection{Kind: history.NoBookmarks}})
		recordEvent := k.record
		k.combine = func(into *injection, f Fault) {
			switch {
			case f.Watch == WatchNoBookmarks:
				into.noBookmarks = true
			case f.Watch != "" && into.Watch == "":
				into.Watch, into.Event = f.Watch, max(1, f.Event)
			}
		}
		k.record = func(i injection) []history.Injection {
			all := recordEvent(i)
			for at := range all {
				all[at].Event = i.Event
			}
			if i.noBookmarks {
				all = append(all, history.Injection{Kind: history.NoBookmarks})
			}
			return all
		}
		return k.affectsEvents()
	}()

	eventKey = key{
		name: "event",
		text: func(f Fault) string { return nonZero(f.Event) },
		parse: func(f *Fault, value string) (err error) {
			if f.Event, err = strconv.Atoi(value); err != nil || f.Event < 1 {
				return fmt.Errorf("event=%s is not a number from 1", value)
			}
			return nil
		},
		check: func(f Fault) error {
			if f.Event < 0 || f.Event != 0 && (f.Watch == "" || f.Watch == WatchNoBookmarks) {
				return errors.New("event is the number, from 1, of the event at which watch=cut, expired or unobserved happens")
			}
			return nil
		},
	}
)

func nonZero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
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

// resourceVerbs are the verbs of requests for resources; pathVerbs are those of other requests, such as for /version.
// They are those of [k8s.io/apiserver/pkg/endpoints/request.RequestInfoFactory], which names the verb of each request.
var (
	resourceVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy"}
	pathVerbs     = []string{"get", "head", "post", "put", "patch", "delete", "options"}
)

func checkVerb(f Fault) error {
	verbs, of := slices.Concat(resourceVerbs, pathVerbs), ""
	if f.Resource != "" {
		verbs, of = resourceVerbs, " for a resource"
	}
	if f.Verb == "" || slices.Contains(verbs, f.Verb) {
		return nil
	}
	return fmt.Errorf("no request%s has the verb %q; the verbs are get, list, watch, create, update, patch, delete and deletecollection, "+
		"and for a path that is no resource, such as /version, the HTTP method in lower case", of, f.Verb)
}

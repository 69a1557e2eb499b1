package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// Where a fault comes is said by its step, and by numbers that begin anew there.
func TestLocate(t *testing.T) {
	begin := time.Unix(1e9, 0)
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }
	h := &history.History{}
	request := func(verb, name string, second int) {
		h.Requests = append(h.Requests, history.Request{ID: int64(len(h.Requests) + 1), Program: "controller", Verb: verb, Resource: "pods", Name: name, Start: at(second), Status: 200})
	}
	event := func(watch int64, kind string, second int) {
		h.Events = append(h.Events, history.Event{Request: watch, Type: kind, Resource: "pods", Name: "a", Time: at(second)})
	}
	request("watch", "", 1) // the requests 1 and 2, of two replicas
	request("watch", "", 2)
	event(1, "ADDED", 3)
	event(2, "ADDED", 3)
	request("patch", "a", 4)
	event(1, "MODIFIED", 11)
	event(2, "BOOKMARK", 12)
	event(2, "MODIFIED", 13)
	request("patch", "a", 14)
	request("patch", "a", 15)
	request("patch", "a", 25)
	locate := World{Baseline: h, Steps: []time.Time{at(0), at(10), at(20)}}.Locate()
	aim := func(verb string, nth int, effect apiproxy.Effect) Plan {
		return Plan{Faults: []apiproxy.Fault{{Match: apiproxy.Match{Program: "controller", Verb: verb, Resource: "pods", Group: apiproxy.CoreGroup, Subresource: apiproxy.NoSubresource, From: nth, To: nth}, Effect: effect}}}
	}
	refused := apiproxy.Effect{Refuse: 500}
	for name, c := range map[string]struct {
		plan    Plan
		step    int
		nth     int
		event   int
		ofEvent bool
	}{
		"a request":                  {aim("patch", 1, refused), 0, 1, 0, false},
		"the first of the next step": {aim("patch", 2, refused), 1, 1, 0, false},
		"the second":                 {aim("patch", 3, refused), 1, 2, 0, false},
		"a watch":                    {aim("watch", 2, refused), 0, 2, 0, false},
		"an event":                   {aim("watch", 1, apiproxy.Effect{Watch: apiproxy.WatchCut, Event: 1}), 0, 0, 1, true},
		"an event of an open watch":  {aim("watch", 1, apiproxy.Effect{Watch: apiproxy.WatchCut, Event: 2}), 1, 0, 1, true},
		"one of another watch":       {aim("watch", 2, apiproxy.Effect{Watch: apiproxy.WatchExpired, Event: 2}), 1, 0, 2, true},
		"a crash":                    {aim("patch", 3, apiproxy.Effect{Crash: apiproxy.After}), 1, 2, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			place, ok := locate(c.plan)
			require.True(t, ok)
			f := c.plan.Faults[0]
			f.From, f.To, f.Event = c.nth, c.nth, c.event
			require.Equal(t, Place{c.step, f, c.ofEvent}, place)
		})
	}
	whole := aim("watch", 1, refused)
	whole.Faults[0].From, whole.Faults[0].To = 0, 0
	for name, p := range map[string]Plan{
		"in the quiet time":       aim("patch", 4, refused),
		"that did not come":       aim("patch", 5, refused),
		"an event that did not":   aim("watch", 1, apiproxy.Effect{Watch: apiproxy.WatchCut, Event: 3}),
		"of no class that is":     aim("delete", 1, refused),
		"all of a class":          whole,
		"for a while":             aim("patch", 1, apiproxy.Effect{Refuse: 500, For: time.Second}),
		"no answer":               aim("patch", 1, apiproxy.Effect{Hang: time.Second}),
		"frozen":                  aim("patch", 1, apiproxy.Effect{Freeze: apiproxy.Before}),
		"a long outage":           aim("patch", 1, apiproxy.Effect{Down: time.Minute}),
		"all events of a watch":   aim("watch", 1, apiproxy.Effect{Late: time.Second}),
		"no bookmarks of a watch": aim("watch", 1, apiproxy.Effect{Watch: apiproxy.WatchNoBookmarks}),
		"two faults":              {Faults: append(aim("patch", 1, refused).Faults, aim("patch", 2, refused).Faults...)},
		"none":                    NoFault,
	} {
		t.Run(name, func(t *testing.T) {
			_, ok := locate(p)
			require.False(t, ok)
		})
	}
	_, ok := World{Baseline: h}.Locate()(aim("patch", 1, refused))
	require.False(t, ok, "it is not known when the steps began")
}

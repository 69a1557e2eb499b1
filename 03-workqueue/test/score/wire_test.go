package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
)

// tape builds a recording. Times are in seconds since its begin.
type tape struct {
	begin   time.Time
	records []history.Record
}

func newTape() *tape { return &tape{begin: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)} }

func (r *tape) at(second float64) time.Time {
	return r.begin.Add(time.Duration(second * float64(time.Second)))
}

func (r *tape) request(second float64, verb, resource string, change ...func(*history.Request)) *tape {
	request := history.Request{
		ID: int64(len(r.records) + 1), Start: r.at(second), Duration: 10 * time.Millisecond,
		Verb: verb, Version: "v1", Resource: resource, Status: 200, Open: verb == "watch",
	}
	for _, c := range change {
		c(&request)
	}
	r.records = append(r.records, history.Record{Request: &request})
	return r
}

func (r *tape) event(second float64, watch int64, kind, resource, name, version string) *tape {
	r.records = append(r.records, history.Record{Event: &history.Event{
		Request: watch, Time: r.at(second), Type: kind, Resource: resource, Name: name, ResourceVersion: version,
	}})
	return r
}

func (r *tape) history() *history.History { return history.Of(r.records...) }

func rv(version string) func(*history.Request) {
	return func(r *history.Request) { r.RVAfter = version }
}

func failed(r *history.Request) { r.Status = 500 }
func closed(r *history.Request) { r.Open = false }

// observe makes n checks and reports whether the change to resourceVersion 100 is lost then.
func observe(i *idleness, r *tape, n int) (lost bool) {
	for range n {
		lost = i.observe(r.history(), "100")
	}
	return lost
}

// A change is lost only if the controller received it, could read the Pods, and made no write.
func TestIdleness(t *testing.T) {
	watching := func() *tape {
		return newTape().request(0, "watch", "pods").request(0, "watch", "configmaps").
			event(1, 2, "ADDED", "configmaps", configName, "50")
	}
	for name, test := range map[string]struct {
		tape *tape
		lost bool
	}{
		"was sent it by a watch":          {watching().event(5, 2, "MODIFIED", "configmaps", configName, "100"), true},
		"was sent a later one":            {watching().event(5, 2, "MODIFIED", "configmaps", configName, "101"), true},
		"asked for it, and for the Pods":  {newTape().request(5, "get", "configmaps", rv("100")).request(6, "list", "pods").request(7, "list", "pods").request(8, "list", "pods"), true},
		"was not sent it":                 {watching(), false},
		"was sent something else":         {watching().event(5, 2, "MODIFIED", "configmaps", "another", "100").event(5, 1, "MODIFIED", "pods", configName, "100"), false},
		"got an error":                    {newTape().request(0, "watch", "pods").request(5, "get", "configmaps", rv("100"), failed), false},
		"has asked for older Pods":        {newTape().request(1, "list", "pods").request(2, "list", "pods").request(3, "list", "pods").request(5, "get", "configmaps", rv("100")), false},
		"has asked for the Pods twice":    {newTape().request(5, "get", "configmaps", rv("100")).request(6, "list", "pods").request(7, "list", "pods"), false},
		"has asked for Pods, and got 500": {newTape().request(5, "get", "configmaps", rv("100")).request(6, "list", "pods").request(7, "list", "pods").request(8, "list", "pods", failed), false},
		"is not told of Pods any more":    {newTape().request(0, "watch", "pods", closed).request(0, "watch", "configmaps").event(5, 2, "MODIFIED", "configmaps", configName, "100"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var idle idleness
			require.False(t, observe(&idle, test.tape, patience-1), "this is too early in any case")
			require.Equal(t, test.lost, observe(&idle, test.tape, 1))
			require.Equal(t, test.lost, observe(&idle, test.tape, 10*patience))
		})
	}

	t.Run("each write is a new beginning", func(t *testing.T) {
		tape := watching().event(5, 2, "MODIFIED", "configmaps", configName, "100")
		var idle idleness
		for i := range 5 {
			require.False(t, observe(&idle, tape, patience-1))
			tape.request(6+float64(i), "delete", "pods", failed) // also one that fails
		}
		require.False(t, observe(&idle, tape, patience-1))
		require.True(t, observe(&idle, tape, 1))
	})
	t.Run("a write from before the change is none", func(t *testing.T) {
		tape := watching().request(4, "delete", "pods").event(5, 2, "MODIFIED", "configmaps", configName, "100")
		var idle idleness
		require.True(t, observe(&idle, tape, patience))
	})
	t.Run("what polls must have asked after its last write", func(t *testing.T) {
		tape := newTape().request(5, "get", "configmaps", rv("100")).
			request(6, "list", "pods").request(7, "list", "pods").request(8, "list", "pods").request(9, "delete", "pods")
		var idle idleness
		require.False(t, observe(&idle, tape, 10*patience))
		tape.request(10, "list", "pods").request(11, "list", "pods").request(12, "list", "pods")
		require.False(t, observe(&idle, tape, patience-1))
		require.True(t, observe(&idle, tape, 1))
	})
}

func TestSynced(t *testing.T) {
	for name, test := range map[string]struct {
		tape *tape
		want bool
	}{
		"nothing":             {newTape(), false},
		"has asked for both":  {newTape().request(1, "get", "configmaps").request(1, "list", "pods"), true},
		"has asked for one":   {newTape().request(1, "list", "pods"), false},
		"asked before":        {newTape().request(-1, "get", "configmaps").request(1, "list", "pods"), false},
		"one was refused":     {newTape().request(1, "get", "configmaps", failed).request(1, "list", "pods"), false},
		"watches, both told":  {newTape().request(1, "watch", "configmaps").request(1, "watch", "pods").event(2, 1, "BOOKMARK", "configmaps", "", "7").event(2, 2, "BOOKMARK", "pods", "", "7"), true},
		"watches, one is not": {newTape().request(1, "watch", "configmaps").request(1, "watch", "pods").event(2, 1, "BOOKMARK", "configmaps", "", "7").event(2, 2, "ADDED", "pods", "a", "7"), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, synced(test.tape.history(), test.tape.at(0)))
		})
	}
}

func TestPolledSince(t *testing.T) {
	for name, test := range map[string]struct {
		tape *tape
		want bool
	}{
		"watches":               {newTape().request(1, "watch", "pods").request(6, "list", "nodes"), true},
		"lists often enough":    {newTape().request(1, "list", "pods").request(5, "list", "pods").request(6, "list", "pods").request(7, "list", "pods"), true},
		"lists not often":       {newTape().request(1, "list", "pods").request(5, "list", "pods").request(6, "list", "pods"), false},
		"lists, and is refused": {newTape().request(5, "list", "pods").request(6, "list", "pods").request(7, "list", "pods", failed), false},
		"has listed before":     {newTape().request(1, "list", "pods").request(2, "list", "pods").request(3, "list", "pods"), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, polledSince(test.tape.history(), test.tape.at(5)))
		})
	}
}

// Only what happens in the interval counts, also for watches that were opened earlier.
func TestPerMinute(t *testing.T) {
	tape := newTape().request(0, "watch", "pods").
		request(5, "list", "pods", func(r *history.Request) { r.Received = 9_000_000 }).
		request(10, "list", "pods", func(r *history.Request) { r.Received = 3000 }).
		request(30, "list", "pods", func(r *history.Request) { r.Received = 9_000_000 })
	tape.event(15, 1, "BOOKMARK", "pods", "", "7")
	tape.records[len(tape.records)-1].Event.Bytes = 600
	require.Equal(t, rate{Requests: 3, KB: 10.8}, perMinute(tape.history(), tape.at(10), tape.at(30)))
	require.Equal(t, rate{}, perMinute(tape.history(), tape.at(40), tape.at(50)))
}

func TestCount(t *testing.T) {
	tape := newTape().
		request(0, "get", "configmaps").request(1, "list", "pods").request(1, "watch", "pods").
		request(2, "delete", "pods").request(3, "delete", "pods", failed).
		request(4, "patch", "pods", func(r *history.Request) { r.NoOp = true }).
		request(5, "create", "events")
	var s score
	s.count(tape.history())
	require.Equal(t, [4]int{3, 1, 1, 1}, [4]int{s.Writes, s.NoOps, s.FailedWrites, s.EventWrites})
	require.Equal(t, [4]int{1, 1, 1, 7}, [4]int{s.requests("get"), s.requests("list"), s.requests("watch"), s.requests("")})
}

package history_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
)

func TestRead(t *testing.T) {
	const request = `{"request":{"id":1,"start":"2026-01-02T15:00:00Z","verb":"get","uri":"/"}}`
	const event = `{"event":{"watch":1,"time":"2026-01-02T15:00:01Z","type":"ADDED","resource":"pods","bytes":7}}`
	for name, c := range map[string]struct {
		text             string
		requests, events int
		err              string
	}{
		"empty":                      {"", 0, 0, ""},
		"both kinds":                 {request + "\n" + event + "\n", 1, 1, ""},
		"no newline at the end":      {request + "\n" + event, 1, 1, ""},
		"empty lines":                {"\n" + request + "\n\n", 1, 0, ""},
		"cut off at the end":         {request + "\n" + event[:20], 1, 0, ""},
		"cut off in the middle":      {event[:20] + "\n" + request + "\n", 0, 0, "line 1: not a record"},
		"cut off, but with its end":  {request + "\n" + event[:20] + "\n", 0, 0, "line 2: not a record"},
		"neither":                    {request + "\n{}\n", 0, 0, "line 2: not a record: it must have one of"},
		"both at once":               {request[:len(request)-1] + "," + event[1:] + "\n", 0, 0, "line 1: not a record: it must have one of"},
		"fields of a later recorder": {`{"request":{"id":1,"start":"2026-01-02T15:00:00Z","verb":"get","uri":"/","color":"red"}}` + "\n", 1, 0, ""},
		"a long line":                {strings.Replace(request, `"/"`, `"/`+strings.Repeat("x", 1<<20)+`"`, 1) + "\n", 1, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := history.Read(strings.NewReader(c.text))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Len(t, h.Requests, c.requests)
			require.Len(t, h.Events, c.events)
		})
	}
}

// Whatever byte the recorder was killed at, what was written before is read.
func TestReadCutAnywhere(t *testing.T) {
	text := strings.TrimSpace(recording) + "\n"
	for end := range len(text) {
		h, err := history.Read(strings.NewReader(text[:end]))
		require.NoError(t, err, "after %d bytes", end)
		lines := strings.Count(text[:end], "\n")
		require.GreaterOrEqual(t, len(h.Requests)+len(h.Events), min(lines, 8), "after %d bytes", end)
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording")
	require.NoError(t, os.WriteFile(path, []byte("no\n"), 0o600))
	_, err := history.ReadFile(path)
	require.ErrorContains(t, err, "read the recording "+path+": line 1: ")
}

func TestRequestSurvivesJSON(t *testing.T) {
	full := history.Request{
		ID: 1, Start: time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC), Duration: 1234567 * time.Nanosecond,
		Who: "who", Agent: "agent", Verb: "verb", Group: "group", Version: "version", Resource: "resource",
		Subresource: "sub", Namespace: "ns", Name: "name", URI: "/a?b=c&d=<e>", Status: 200, Error: "error", Open: true,
		Sent: 1, Received: 2, RVBefore: "3", RVAfter: "4", UID: "uid", NoOp: true, DryRun: true,
		Injected: []history.Injection{
			{Kind: history.Delayed, Duration: 1500 * time.Microsecond},
			{Kind: history.ControllerKilled, After: true},
			{Kind: history.Refused, Status: 503},
			{Kind: history.WatchCut, Event: 2, Skipped: "text/html is not understood"},
		},
	}
	for _, want := range []history.Request{full, {ID: 2, Start: full.Start}} {
		var line bytes.Buffer
		require.NoError(t, history.Write(&line, history.Record{Request: &want}))
		require.Equal(t, 1, strings.Count(line.String(), "\n"))
		var got history.Record
		require.NoError(t, json.Unmarshal(line.Bytes(), &got))
		require.Equal(t, want, *got.Request)
		require.Nil(t, got.Event)
	}
}

func TestDurationSurvivesMilliseconds(t *testing.T) {
	for i := range 10_000 {
		want := history.Request{Duration: time.Duration(i*7919) * time.Nanosecond}
		text, err := json.Marshal(want)
		require.NoError(t, err)
		var got history.Request
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, want.Duration, got.Duration)
	}
}

func request(id int64, verb string, start, end int) history.Record {
	return history.Record{Request: &history.Request{ID: id, Verb: verb, Resource: "pods", Status: 200,
		Start: at(start), Duration: at(end).Sub(at(start))}}
}

func TestRequestsAreSortedByStart(t *testing.T) {
	// The order of a recording is that of the ends.
	h := history.Of(request(2, "list", 2, 3), request(1, "list", 1, 4), request(3, "get", 2, 5))
	var ids []int64
	for _, r := range h.Requests {
		ids = append(ids, r.ID)
	}
	require.Equal(t, []int64{1, 2, 3}, ids)
}

func TestTimeToLastWrite(t *testing.T) {
	// The write that ends last is not the one that starts last; it ends after the next change.
	h := history.Of(request(1, "delete", 1, 9), request(2, "create", 2, 3), request(3, "list", 4, 30),
		request(4, "patch", 5, 6), request(5, "watch", 6, 40))
	times := func(seconds ...int) []time.Time {
		var times []time.Time
		for _, second := range seconds {
			times = append(times, at(second))
		}
		return times
	}
	for name, c := range map[string]struct {
		changes []time.Time
		want    []time.Duration
	}{
		"no change":                  {nil, nil},
		"one":                        {times(0), []time.Duration{9 * time.Second}},
		"at the moment of a write":   {times(5), []time.Duration{time.Second}},
		"after all writes":           {times(10), []time.Duration{history.NoWrite}},
		"each has its own":           {times(0, 5), []time.Duration{9 * time.Second, time.Second}},
		"in the order given":         {times(5, 0), []time.Duration{time.Second, 9 * time.Second}},
		"in no order at all":         {times(6, 5, 2), []time.Duration{history.NoWrite, time.Second, time.Second}},
		"none between two":           {times(3, 4), []time.Duration{history.NoWrite, 2 * time.Second}},
		"two at once share theirs":   {times(2, 2), []time.Duration{4 * time.Second, 4 * time.Second}},
		"the last of several counts": {times(2), []time.Duration{4 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, h.TimeToLastWrite(c.changes))
		})
	}
}

func TestBetweenAndWhereTogether(t *testing.T) {
	h := read()
	isShop := func(r history.Request) bool { return r.ShortAgent() == "shop" }
	// The watch began before, so only a part that remembers it can tell whose events these are.
	oneWay := h.Between(at(5), at(40)).Where(isShop)
	otherWay := h.Where(isShop).Between(at(5), at(40))
	require.Len(t, oneWay.Events, 1)
	require.Equal(t, oneWay.Requests, otherWay.Requests)
	require.Equal(t, oneWay.Events, otherWay.Events)
	require.Equal(t, oneWay.Cost(), otherWay.Cost())
	require.Equal(t, []string{"shop"}, oneWay.Agents())
	require.Equal(t, 35*time.Second, oneWay.Span())

	require.Equal(t, h.Cost(), h.Between(time.Time{}, time.Time{}).Cost(), "no limits")
	require.Empty(t, h.Between(at(1), at(5)).Between(at(10), at(20)).Requests)
	require.Equal(t, 2*time.Second, h.Between(at(1), at(5)).Between(at(3), at(20)).Span())
}

func TestBill(t *testing.T) {
	bill := func(h *history.History, o history.BillOptions) string {
		var text bytes.Buffer
		require.NoError(t, h.WriteBill(&text, o))
		return text.String()
	}
	const nothing = "VERB    RESOURCE   REQUESTS   NO-OP   FAILED   EVENTS   KB\n" +
		"total              0          0       0        0        0.0\n"
	require.Equal(t, nothing, bill(history.Of(), history.BillOptions{}))
	require.Equal(t, nothing, bill(history.Of(), history.BillOptions{PerMinute: true}))

	err := history.Of(request(1, "get", 1, 1)).WriteBill(&bytes.Buffer{}, history.BillOptions{PerMinute: true})
	require.ErrorContains(t, err, "too short")

	byAgent := bill(read(), history.BillOptions{ByAgent: true})
	require.Contains(t, byAgent, "total                                 6 ")
	for line := range strings.Lines(byAgent) {
		require.Equal(t, strings.TrimRight(line, " \n")+"\n", line, "no spaces at the end")
	}
}

func TestWhatWasDoneToARequest(t *testing.T) {
	stop, delay := history.Injection{Kind: history.ControllerStopped}, history.Injection{Kind: history.Delayed, Duration: time.Second}
	refusal := history.Injection{Kind: history.Refused, Status: 503}
	late := history.Injection{Kind: history.AnsweredLate, Duration: 3 * time.Second}
	for name, c := range map[string]struct {
		injected                    []history.Injection
		text                        string
		disturbed, slow, toldToStop bool
	}{
		"nothing":                {},
		"a delay":                {[]history.Injection{delay}, "delayed by 1s", true, true, false},
		"a late answer":          {[]history.Injection{late}, "answered 3s late", true, true, false},
		"no answer":              {[]history.Injection{{Kind: history.NoAnswer, Duration: 20 * time.Second}}, "no answer for 20s", true, false, false},
		"a freeze":               {[]history.Injection{{Kind: history.ControllerFrozen, Duration: 20 * time.Second}}, "controller frozen for 20s before it", true, false, false},
		"a freeze afterwards":    {[]history.Injection{{Kind: history.ControllerFrozen, Duration: time.Second, After: true}}, "controller frozen for 1s after it", true, false, false},
		"a reboot":               {[]history.Injection{{Kind: history.MachineRebooted}}, "machine rebooted before it", true, false, false},
		"a power cut afterwards": {[]history.Injection{{Kind: history.PowerCut, After: true}}, "power cut after it", true, false, false},
		"a long power cut":       {[]history.Injection{{Kind: history.PowerCut, Duration: time.Minute}}, "power cut for 1m0s before it", true, false, false},
		"a long reboot":          {[]history.Injection{{Kind: history.MachineRebooted, Duration: time.Minute, After: true}}, "machine rebooted for 1m0s after it", true, false, false},
		"a refusal":              {[]history.Injection{refusal}, "refused with 503", true, false, false},
		"a delay and a refusal":  {[]history.Injection{delay, refusal}, "delayed by 1s, refused with 503", true, false, false},
		"a stop":                 {[]history.Injection{stop}, "controller told to stop before it", true, false, true},
		"a stop and a delay":     {[]history.Injection{stop, delay}, "controller told to stop before it, delayed by 1s", true, false, true},
		"a stop, answered late":  {[]history.Injection{stop, late}, "controller told to stop before it, answered 3s late", true, false, true},
		"a stop and a refusal":   {[]history.Injection{stop, refusal}, "controller told to stop before it, refused with 503", true, false, false},
		"what could not be done": {[]history.Injection{{Kind: history.WatchCut, Event: 2, Skipped: "it is XML"}}, "cut at event 2: not done, as it is XML", false, false, false},
		"a delay, and what could not be done": {[]history.Injection{delay, {Kind: history.WatchCut, Event: 2, Skipped: "it is XML"}},
			"delayed by 1s, cut at event 2: not done, as it is XML", true, true, false},
		"a stop that could not be done": {[]history.Injection{{Kind: history.ControllerStopped, Skipped: "it was stopping"}},
			"controller told to stop before it: not done, as it was stopping", false, false, true},
		"what nobody knows": {[]history.Injection{{Kind: "tickled"}}, "tickled", true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := history.Request{Injected: c.injected}
			require.Equal(t, c.text, r.Injections())
			require.Equal(t, c.disturbed, r.IsDisturbed())
			require.Equal(t, c.slow, r.IsOnlySlow())
			require.Equal(t, c.toldToStop, r.OnlyToldToStop())
		})
	}
}

// A side effect of a fault disturbs a request, but is not what the fault asked for.
func TestMetFault(t *testing.T) {
	late := history.Injection{Kind: history.EventsLate, Duration: 2 * time.Second}
	sideEffect, skipped := late, history.Injection{Kind: history.WatchUnobserved, Event: 1, Skipped: "no other event came"}
	sideEffect.SideEffect = true
	for name, c := range map[string]struct {
		injected       []history.Injection
		disturbed, met bool
	}{
		"nothing":               {},
		"a fault":               {[]history.Injection{late}, true, true},
		"one that was not done": {[]history.Injection{skipped}, false, false},
		"a side effect":         {[]history.Injection{sideEffect, skipped}, true, false},
		"both":                  {[]history.Injection{late, sideEffect, skipped}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := history.Request{Injected: c.injected}
			require.Equal(t, c.disturbed, r.IsDisturbed())
			require.Equal(t, c.met, r.MetFault())
		})
	}
}

// Whoever waits for something reads the recording many times a second.
func TestMemoryIsReadAgainOnlyIfThereIsMore(t *testing.T) {
	var memory history.Memory
	require.Empty(t, memory.History().Requests)
	memory.Record(history.Record{Request: &history.Request{ID: 1}})
	before := memory.History()
	require.Len(t, before.Requests, 1)
	require.Same(t, before, memory.History())
	memory.Record(history.Record{Request: &history.Request{ID: 2}})
	require.Len(t, memory.History().Requests, 2)
	require.Len(t, before.Requests, 1, "a history does not change")
}

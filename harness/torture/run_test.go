package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// recorded is a run of which this was recorded.
func recorded(s *Scenario, requests ...history.Request) *run {
	r := &run{runner: &runner{scenario: s}, namespace: "torture-1", failed: make(chan string, 1)}
	for i, q := range requests {
		q.ID = int64(i + 1)
		r.recording.Record(history.Record{Request: &q})
	}
	return r
}

func TestExcuse(t *testing.T) {
	started := time.Unix(1e9, 0)
	at := func(s int, q history.Request) history.Request {
		q.Start = started.Add(time.Duration(s) * time.Second)
		return q
	}
	fine, refused, broken := history.Request{Status: 200}, history.Request{Injected: []history.Injection{{Kind: history.Refused, Status: 500}}, Status: 500}, history.Request{Error: "broken off"}
	slow, missing := history.Request{Injected: []history.Injection{{Kind: history.Delayed, Duration: 2 * time.Second}}, Status: 200}, history.Request{Status: 404}
	for name, c := range map[string]struct {
		mayExit, status int
		requests        []history.Request
		want            bool
	}{
		"it must not":              {0, 0, []history.Request{at(1, refused)}, false},
		"it must not, and fails":   {0, 1, []history.Request{at(1, refused)}, false},
		"with another status":      {1, 2, []history.Request{at(1, refused)}, false},
		"well":                     {1, 0, []history.Request{at(1, refused)}, false},
		"it has asked for nothing": {1, 1, nil, false},
		"nothing was done to it":   {1, 1, []history.Request{at(1, missing)}, false},
		"something was done to it": {1, 1, []history.Request{at(1, refused)}, true},
		"something was broken off": {3, 3, []history.Request{at(1, missing), at(2, broken)}, true},
		"it could begin":           {1, 1, []history.Request{at(1, fine), at(2, refused)}, false},
		"it could begin, at once":  {1, 1, []history.Request{at(0, fine), at(2, refused)}, false},
		"it could begin, slowly":   {1, 1, []history.Request{at(1, slow), at(2, refused)}, false},
		"it could begin before":    {1, 1, []history.Request{at(-2, fine), at(-1, refused), at(1, broken)}, true},
		"what was done lasts":      {1, 1, []history.Request{at(-2, fine), at(-1, refused)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, recorded(&Scenario{MayExit: c.mayExit}, c.requests...).excuse(c.status, started))
		})
	}
	r, times := recorded(&Scenario{MayExit: 1}, at(1, refused)), 0
	for times < 1000 && r.excuse(1, started) {
		times++
	}
	require.Less(t, times, 1000, "it is not excused for ever")
}

func TestJudgeTries(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1e9+int64(s), 0) }
	deletes := func(s int, name string) history.Request {
		return history.Request{Start: at(s), Verb: "delete", Resource: "pods", Name: name, Status: 500}
	}
	steps := []time.Time{at(10), at(20)}
	for name, c := range map[string]struct {
		most     int
		requests []history.Request
		want     string
	}{
		"none":          {2, nil, ""},
		"as many":       {2, []history.Request{deletes(10, "a"), deletes(11, "a"), deletes(12, "b")}, ""},
		"too many":      {2, []history.Request{deletes(10, "a"), deletes(11, "a"), deletes(12, "a")}, "delete pods a: tried 3 times, should be 2 at most"},
		"any":           {0, []history.Request{deletes(10, "a"), deletes(11, "a"), deletes(12, "a")}, ""},
		"in two steps":  {2, []history.Request{deletes(10, "a"), deletes(19, "a"), deletes(20, "a"), deletes(21, "a")}, ""},
		"in the second": {1, []history.Request{deletes(10, "a"), deletes(20, "a"), deletes(99, "a")}, "delete pods a: tried 2 times, should be 1 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(&Scenario{MostTries: c.most, Resources: []string{"pods"}}, c.requests...)
			r.parts = steps
			err := r.judgeTries()
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, verdict{NoRest, c.want}, err)
		})
	}
}

// Refused creates have no name, and are not of one object for that.
// Events are not what it is about, but they say that something has happened.
func TestJudgeEventsAtRest(t *testing.T) {
	for name, c := range map[string]struct {
		want, seen int
		excused    int
		requests   []history.Request
		broken     string
	}{
		"none":             {0, 0, 0, nil, ""},
		"as undisturbed":   {3, 3, 0, nil, ""},
		"more":             {0, 1, 0, []history.Request{{Verb: "create", Resource: "events", Status: 201}}, "1 Events in 2s in which nothing happens; undisturbed there are 0"},
		"one that failed":  {0, 1, 0, []history.Request{{Verb: "create", Resource: "events", Status: 500}}, ""},
		"one that is slow": {0, 1, 0, []history.Request{{Verb: "create", Resource: "events", Status: 201, Injected: []history.Injection{{Kind: history.Delayed, Duration: 2 * time.Second}}}}, ""},
		"looked again":     {0, 2, 2, nil, ""},
		"another failed":   {0, 1, 0, []history.Request{{Verb: "create", Resource: "pods", Status: 500}}, "1 Events in 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(&Scenario{Quiet: metav1.Duration{Duration: 2 * time.Second}}, c.requests...)
			r.rules = rules{invariants: &oracle.Rules{}}
			r.want = observed{end: []string{}, events: c.want}
			r.states = &oracle.States{}
			err := r.judge(observed{events: c.seen, effects: oracle.Effects{Excused: c.excused}})
			if c.broken == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.broken)
		})
	}
}

func TestTriesOfCreates(t *testing.T) {
	var requests []history.Request
	for range 3 {
		requests = append(requests, history.Request{Verb: "create", Resource: "pods", Injected: []history.Injection{{Kind: history.Refused, Status: 500}}, Status: 500})
	}
	r := recorded(&Scenario{MostTries: 2, Resources: []string{"pods"}}, requests...)
	r.parts = []time.Time{{}}
	require.NoError(t, r.judgeTries())
}

func TestSaid(t *testing.T) {
	s := &Scenario{Says: []string{"one", "two"}}
	for name, c := range map[string]struct{ log, failed, want string }{
		"all":               {log: "two\nand one\n"},
		"not all":           {log: "one", want: `change lost: it does not say "two", 0s after the last change`},
		"not all, and died": {log: "one", failed: "it ended", want: "died: it ended"},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(s)
			r.controller = &controller{}
			_, _ = r.controller.Write([]byte(c.log))
			s.Patience.Duration = 0
			if c.failed != "" {
				s.Patience.Duration = hangs
				r.failed <- c.failed
			}
			err := r.said(t.Context())
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
			require.ErrorAs(t, err, new(verdict))
		})
	}
}

func TestPass(t *testing.T) {
	r := recorded(&Scenario{})
	closed := make(chan struct{})
	close(closed)
	require.NoError(t, r.pass(t.Context(), closed, hangs))
	require.NoError(t, r.pass(t.Context(), nil, 0))
	r.failed <- "no"
	require.Equal(t, verdict{Died, "no"}, r.pass(t.Context(), nil, hangs))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	require.ErrorIs(t, r.pass(ctx, nil, hangs), errEnough)
}

func TestIsTold(t *testing.T) {
	require.True(t, isTold([]string{"shop", "--namespace={namespace}"}))
	require.False(t, isTold([]string{"shop", "--kubeconfig={kubeconfig}"}))
}

func TestParallel(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    int
	}{
		"what suits":                      {Options{Scenario: &Scenario{}}, Capacity()},
		"what is asked for":               {Options{Scenario: &Scenario{}, Parallel: 3}, 3},
		"there is one namespace":          {Options{Scenario: &Scenario{Namespace: "shop"}}, 1},
		"there is one namespace, for all": {Options{Scenario: &Scenario{Namespace: "shop"}, Parallel: 3}, 1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.options.parallel()) })
	}
}

func TestTail(t *testing.T) {
	require.Equal(t, "its last lines:\n  a\n  b", tail("a\nb\n"))
	var lines []string
	for i := range 30 {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	require.Equal(t, "its last lines:\n  "+strings.Join(lines[20:], "\n  "), tail(strings.Join(lines, "\n")))
}

func TestProgress(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out, all: 3, begin: time.Now()}
	well := Outcome{Plan: Plan{Kind: "slow"}}
	p.say(well)
	p.say(Outcome{Plan: Plan{Kind: "watch cut"}, Verdict: Lost, Why: "it is gone"})
	require.Equal(t, 1, strings.Count(out.String(), "plans done"), "it does not say so each time")
	p.say(well)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "torture: 1 of 3 plans done, 0 failed, about ")
	require.Equal(t, "torture: watch cut: change lost: it is gone", lines[1])
	require.Equal(t, "torture: 3 of 3 plans done, 1 failed, about 0s left", lines[2])
}

func TestUndisturbedError(t *testing.T) {
	var err error = &UndisturbedError{Died, "it fails by itself"}
	require.EqualError(t, err, "it fails by itself")
	var undisturbed *UndisturbedError
	require.True(t, errors.As(fmt.Errorf("torture: %w", err), &undisturbed))
	require.Equal(t, Died, undisturbed.Verdict)
}

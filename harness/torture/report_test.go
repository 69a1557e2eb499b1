package torture

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// failed are failures with these causes.
func failed(verdict Verdict, causes ...string) []Outcome {
	var outcomes []Outcome
	for _, cause := range causes {
		outcomes = append(outcomes, Outcome{Plan: Plan{Kind: "slow"}, Verdict: verdict, Cause: cause, Message: cause + ", they say", History: &history.History{}})
	}
	return outcomes
}

func TestGroups(t *testing.T) {
	r := &Report{}
	require.Empty(t, r.Groups())
	r.Outcomes = append(failed(Lost, "b"), append(failed(Died, "a", "a", "a"), failed(Lost, "a", "a")...)...)
	r.Outcomes[1].Plan.Kind = "watch cut"
	r.Outcomes[2].Plan.Kind = "answered 500"
	notMet := failed(Died, "a")[0]
	notMet.NotMet = true
	r.Outcomes = append(r.Outcomes, Outcome{Plan: Plan{Kind: "late"}, Verdict: Passed}, notMet, failed(NotRun, "no room")[0])
	groups := r.Groups()
	require.Len(t, groups, 3)
	require.Equal(t, Died, groups[0].Verdict, "the largest comes first")
	require.Equal(t, "a, they say", groups[0].Message)
	require.Equal(t, []string{"answered 500", "slow", "watch cut"}, groups[0].Kinds)
	require.Len(t, groups[0].Failures, 3)
	require.Equal(t, Lost, groups[1].Verdict)
	require.Equal(t, "a", groups[1].Cause)
	require.Equal(t, []string{"slow"}, groups[1].Kinds)
	require.Equal(t, "b", groups[2].Cause)
	require.Len(t, r.NotRun(), 1)
}

// A failure counts when it has been seen twice: in two plans at different times, or in a plan that was repeated.
func TestConfirmed(t *testing.T) {
	at := func(seconds ...int) (outcomes []Outcome) {
		for _, s := range seconds {
			o := failed(Lost, "a")[0]
			o.FailedAt, o.Duration = time.Unix(1e9+int64(s), 0), 30*time.Second
			outcomes = append(outcomes, o)
		}
		return outcomes
	}
	others := at(0, 40)
	others[1].Plan.Kind = "late"
	for name, c := range map[string]struct {
		outcomes   []Outcome
		retried    []Verdict
		confirmed  bool
		seen, runs int
	}{
		"in one plan":                        {failed(Lost, "a"), nil, false, 1, 1},
		"in two runs":                        {failed(Lost, "a", "a"), nil, true, 1, 1},
		"in two runs, side by side":          {at(0, 2), nil, false, 1, 1},
		"in two runs, one after the other":   {at(0, 2, 40), nil, true, 1, 1},
		"in two plans":                       {others, nil, false, 1, 1},
		"in two plans, and in neither again": {others, []Verdict{Passed, Passed, Passed}, false, 1, 4},
		"side by side and in a repeated one": {at(0, 2), []Verdict{Lost}, true, 2, 2},
		"in one plan that was repeated":      {failed(Lost, "a"), []Verdict{Lost}, true, 2, 2},
		"at the third repetition":            {failed(Lost, "a"), []Verdict{Passed, NotRun, Lost}, true, 2, 3},
		"when it could not be run again":     {failed(Lost, "a"), []Verdict{NotRun, NotRun, NotRun}, false, 1, 1},
		"not in a repeated plan":             {failed(Lost, "a"), []Verdict{Passed, Passed, Passed}, false, 1, 4},
		"with another verdict in a repeated": {failed(Lost, "a"), []Verdict{Died}, false, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Report{Outcomes: c.outcomes}
			for _, v := range c.retried {
				r.retried(Outcome{Plan: c.outcomes[0].Plan, Verdict: v})
			}
			groups := r.Groups()
			require.Len(t, groups, 1)
			require.Equal(t, c.confirmed, groups[0].Confirmed())
			require.Equal(t, c.seen, groups[0].Seen)
			require.Equal(t, c.runs, groups[0].Runs)
			require.Equal(t, c.confirmed, len(r.Failures()) > 0)
		})
	}
}

// A plan that fails each time, but not always in the same way, is a failure of the controller.
func TestConfirmedWithAnotherVerdict(t *testing.T) {
	r := &Report{Outcomes: failed(Lost, "a")}
	died := failed(Died, "exit status 1")[0]
	died.Plan = r.Outcomes[0].Plan
	for _, again := range []Outcome{{Plan: died.Plan}, died, died} {
		r.retried(again)
	}
	groups := r.Groups()
	require.Len(t, groups, 2)
	require.Equal(t, []bool{false, true}, []bool{groups[slices.IndexFunc(groups, func(g Group) bool { return g.Verdict == Lost })].Confirmed(), groups[slices.IndexFunc(groups, func(g Group) bool { return g.Verdict == Died })].Confirmed()})
	failures := r.Failures()
	require.Len(t, failures, 1)
	require.Equal(t, Died, failures[0].Verdict)
	require.Equal(t, died.Plan, failures[0].Plan)
}

// A repetition in which the fault did not come says nothing, whatever else has failed.
func TestNotConfirmedWithoutTheFault(t *testing.T) {
	r := &Report{Outcomes: failed(Lost, "a")}
	again := r.Outcomes[0]
	again.NotMet = true
	r.retried(again)
	g := r.Groups()[0]
	require.False(t, g.Confirmed())
	require.Equal(t, []int{1, 1}, []int{g.Seen, g.Runs})
}

func TestWithoutAnError(t *testing.T) {
	other := errors.New("delete it with kubectl")
	require.NoError(t, without(nil, errEnough))
	require.NoError(t, without(fmt.Errorf("plan 7: %w", errEnough), errEnough))
	require.Equal(t, other, without(other, errEnough))
	require.EqualError(t, without(errors.Join(errEnough, errors.Join(other, errEnough)), errEnough), "delete it with kubectl")
}

// Of failures side by side, the first may have come by chance. Another one that comes again confirms them, and is shown first.
func TestConfirmedByAnotherPlan(t *testing.T) {
	r := &Report{Outcomes: failed(Lost, "a", "a", "a", "a", "a")}
	for i, kind := range []string{"slow", "slow", "late", "cut", "killed"} {
		r.Outcomes[i].Plan.Kind, r.Outcomes[i].Message = kind, fmt.Sprint("lost ", i)
		r.Outcomes[i].FailedAt, r.Outcomes[i].Duration = time.Unix(1e9, 0), time.Minute
	}
	require.Equal(t, []Plan{r.Outcomes[0].Plan, r.Outcomes[2].Plan, r.Outcomes[3].Plan}, r.Groups()[0].toRepeat())
	for range maxRetries {
		r.retried(Outcome{Plan: r.Outcomes[0].Plan})
	}
	require.False(t, r.Groups()[0].Confirmed())
	r.retried(Outcome{Plan: r.Outcomes[2].Plan, Verdict: Lost})
	g := r.Groups()[0]
	require.True(t, g.Confirmed())
	require.Equal(t, "lost 2", g.Message)
	require.Equal(t, "late", g.Failures[0].Plan.Kind)
	require.Equal(t, []int{2, 2}, []int{g.Seen, g.Runs})
	require.Len(t, g.Failures, 5)
}

// The first failure is that of the simplest plan, although another was over sooner.
func TestFirst(t *testing.T) {
	plan := func(kind string) Plan { return Plan{Kind: kind} }
	outcome := func(kind string, v Verdict) Outcome { return Outcome{Plan: plan(kind), Verdict: v, Cause: "a"} }
	r := &Report{Planned: []Plan{plan("a"), plan("b"), plan("c"), plan("d"), plan("e")}}
	_, found := r.First()
	require.False(t, found)
	require.Empty(t, r.pending())

	r.Outcomes = []Outcome{outcome("a", NotRun), outcome("e", Lost)}
	_, found = r.First()
	require.False(t, found, "it was seen once")
	r.retried(outcome("e", Lost))
	first, found := r.First()
	require.True(t, found)
	require.Equal(t, plan("e"), first.Plan)
	require.Equal(t, []Plan{plan("b"), plan("c"), plan("d")}, r.pending())

	r.Outcomes = append(r.Outcomes, outcome("c", Died))
	r.retried(outcome("c", Died))
	first, _ = r.First()
	require.Equal(t, plan("c"), first.Plan)
	require.Equal(t, []Plan{plan("b")}, r.pending())
	r.Outcomes = append(r.Outcomes, outcome("b", Passed))
	require.Empty(t, r.pending())
}

// small is a report with two causes.
func small() *Report {
	at := func(ms int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(ms) * time.Millisecond) }
	story := &history.History{Requests: []history.Request{
		{Start: at(0), Verb: "get", URI: "/version", Status: 200},
		{Start: at(10), Verb: "list", Resource: "pods", Status: 200},
		{Start: at(20), Verb: "list", Resource: "configmaps", Status: 200},
		{Start: at(30), Verb: "watch", Resource: "pods", Status: 200},
		{Start: at(1040), Verb: "delete", Resource: "pods", Namespace: "shop", Name: "a", Injected: []history.Injection{{Kind: history.RequestLost}}, Error: "broken off"},
		{Start: at(1050), Verb: "patch", Group: "apps", Resource: "deployments", Subresource: "status", Namespace: "shop", Name: "d", Status: 200},
	}}
	for range 9 {
		story.Requests = append(story.Requests, history.Request{Start: at(2000), Verb: "get", Resource: "pods", Namespace: "shop", Name: "a", Status: 200})
	}
	lost := []apiproxy.Fault{{Match: apiproxy.Match{Verb: "delete", Resource: "pods", From: 1, To: 1}, Effect: apiproxy.Effect{Lost: apiproxy.LostRequest}}}
	killed := []apiproxy.Fault{{Match: apiproxy.Match{Verb: "delete"}, Effect: apiproxy.Effect{Kill: apiproxy.After}}, {Effect: apiproxy.Effect{Delay: time.Second}}}
	return &Report{Duration: 83*time.Second + 400*time.Millisecond, Outcomes: []Outcome{
		{Plan: Plan{Kind: "slow"}, History: &history.History{}},
		{Plan: Plan{Kind: "slow"}, History: &history.History{}, NotMet: true},
		{Plan: Plan{Kind: "request lost", Faults: lost}, Verdict: Lost, Cause: "old Pod", Message: "Pod a-1 still runs, 20s after the start", History: story},
		{Plan: Plan{Kind: "seed 3", Faults: killed}, Verdict: Died, Cause: "panic", Message: "it ended by itself, with exit status 2: panic: no", History: &history.History{}},
		{Plan: Plan{Kind: "seed 4", Faults: killed}, Verdict: Lost, Cause: "old Pod", Message: "Pod a-2 still runs, 20s after the start", History: &history.History{}},
	}}
}

// What a controller did not know when it wrote is part of the story.
func TestReportSaysWhatTheControllerDidNotKnow(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(ms) * time.Millisecond) }
	patch := func(ms int, name, rv string) history.Request {
		return history.Request{ID: int64(ms), Start: at(ms), Duration: time.Millisecond, Agent: "loop/v1", Verb: "patch", Resource: "pods", Namespace: "shop", Name: name, Status: 200, RVAfter: rv}
	}
	event := func(came, told int, kind, name, rv string) history.Event {
		return history.Event{Request: 1, Came: at(came), Time: at(told), Type: kind, Resource: "pods", Namespace: "shop", Name: name, ResourceVersion: rv}
	}
	story := &history.History{
		Requests: []history.Request{
			{ID: 1, Start: at(0), Agent: "loop/v1", Verb: "watch", Resource: "pods", Namespace: "shop", Status: 200, Open: true},
			patch(500, "a", "30"), patch(600, "a", "31"), patch(3000, "a", "32"), patch(3100, "b", "33"),
		},
		Events: []history.Event{
			event(1, 1, "ADDED", "a", "10"), event(1, 1, "ADDED", "b", "11"), event(500, 501, "MODIFIED", "a", "30"), event(600, 601, "MODIFIED", "a", "31"),
			event(2000, 4000, "MODIFIED", "b", "20"),
		},
	}
	outcome := Outcome{Plan: Plan{Kind: "events late"}, Verdict: Lost, Cause: "old Pod", Message: "Pod a still runs", History: story, FailedAt: at(3050)}
	require.Equal(t, []string{"behind at 3.000s: patch pods a: It had not been told everything about shop/b, for 1s."}, staleWrites(outcome))
	outcome.FailedAt = time.Time{}
	require.Equal(t, []string{
		"behind at 3.000s: patch pods a: It had not been told everything about shop/b, for 1s.",
		"behind at 3.100s: patch pods b: It had been told of version 11; the API server had version 20, and it had been behind for 1.1s.",
	}, staleWrites(outcome))
	var text strings.Builder
	r := &Report{Outcomes: []Outcome{outcome}}
	r.retried(Outcome{Plan: outcome.Plan, Verdict: Lost})
	require.NoError(t, r.Summary(Details{}).WriteText(&text))
	require.Contains(t, text.String(), "behind at 3.100s: patch pods b: It had been told of version 11;")
}

func TestWriteText(t *testing.T) {
	var text strings.Builder
	r := small()
	r.Outcomes[0].Notes = []string{"patch pods a: once, should be 2"}
	r.Outcomes[2].Notes = r.Outcomes[0].Notes
	r.Outcomes[3].Message += strings.Repeat(" and no again", 6)
	r.retried(Outcome{Plan: r.Outcomes[3].Plan, Verdict: Passed})
	r.retried(Outcome{Plan: r.Outcomes[2].Plan, Verdict: Lost})
	r.Outcomes = append(r.Outcomes,
		Outcome{Plan: Plan{Kind: "slow"}, History: &history.History{}, Verdict: NotRun, Message: "no space"},
		Outcome{Plan: Plan{Kind: "watch cut"}, History: &history.History{}, Verdict: NoRest, Cause: "writes", Message: "2 writes in 2s in which nothing happens"},
		Outcome{Plan: Plan{Kind: "watch cut"}, History: &history.History{}, NotMet: true, Verdict: Died, Cause: "panic", Message: "it ended by itself"})
	require.NoError(t, r.Summary(Details{Replay: func(p Plan) string { return "workshop torture " + p.String() + " -- shop" }}).WriteText(&text))
	require.Equal(t, `FAULT          PLANS   PASSED   NOT INJECTED   NOT RUN   FAILED
request lost   1       0        0              0         1 change lost
seeds          2       0        0              0         1 died, 1 change lost
slow           3       1        1              1
watch cut      2       0        1              0         1 does not come to rest

NOT INJECTED: the request or event at which the fault is aimed did not come in that run, or the
fault could not be done to it, so these plans say nothing about the controller.

1. change lost: Pod a-1 still runs, 20s after the start
   2 plans: request lost, seed 4; the first of them failed like this in 2 of 2 runs
   replay: workshop torture --fault verb=delete,resource=pods,nth=1,lost=request -- shop
     TIME     VERB     RESOURCE                  OBJECT   STATUS   FAULT
     0.000s   list     configmaps                         200
     0.010s   watch    pods                               200
     1.020s   delete   pods                      a        -        request lost
     1.030s   patch    deployments.apps/status   d        200
     1.980s   get      pods                      a        200
     1.980s   get      pods                      a        200
     1.980s   get      pods                      a        200

Not counted, as it comes without the fault, too: died: it ended by itself, with exit status 2:
panic: no and no again and no again and no again and no again and no again and no again
   1 plan: seed 3, which failed like this in 1 of 2 runs; without its fault, 1 of 2 runs did
   replay: workshop torture --fault verb=delete,kill=after --fault delay=1s -- shop

Not counted, as it has been seen once, and no repetition of its plan says more: does not come to
rest: 2 writes in 2s in which nothing happens
   1 plan: watch cut
   replay: workshop torture  -- shop

Not counted, as the fault did not come: 1 plan failed all the same. The first: watch cut: died: it
ended by itself
   replay: workshop torture  -- shop

1 plan could not be run, which says nothing about the controller. The first: slow: no space

Different from the baseline, which may be right:
 - patch pods a: once, should be 2 (in 2 plans)

8 plans, 2 failed; 1m23s
`, text.String())
}

func TestWriteTextOfASuccess(t *testing.T) {
	var text strings.Builder
	r := &Report{Duration: time.Second, Outcomes: []Outcome{{Plan: Plan{Kind: "slow"}, History: &history.History{}}}}
	require.NoError(t, r.Summary(Details{}).WriteText(&text))
	require.Equal(t, `FAULT   PLANS   PASSED   NOT INJECTED
slow    1       1        0

1 plan, 0 failed; 1s
`, text.String())
}

func TestReportOfARunThatEndedEarly(t *testing.T) {
	r := &Report{Duration: time.Second, Outcomes: []Outcome{{Plan: Plan{Kind: "slow"}, History: &history.History{}}}}
	for how, c := range map[string]struct {
		details Details
		json    string
	}{
		"interrupted":       {Details{Interrupted: true}, `"interrupted": true`},
		"ended by an error": {Details{Err: errors.New("no space")}, `"error": "no space"`},
	} {
		c.details.Planned, c.details.Resume = 140, "workshop torture --resume"
		var text strings.Builder
		require.NoError(t, r.Summary(c.details).WriteText(&text))
		require.Equal(t, `FAULT   PLANS   PASSED   NOT INJECTED
slow    1       1        0

`+how+`: 1 of 140 plans were run, 0 failed; 1s
resume: workshop torture --resume
`, text.String())
		text.Reset()
		require.NoError(t, r.Summary(c.details).WriteJSON(&text))
		require.JSONEq(t, `{"plans":1,"failed":0,"notMet":0,"notRun":0,`+c.json+`,"planned":140,"resume":"workshop torture --resume","seconds":1,"failures":[]}`, text.String())
	}
}

func TestWriteTextIfNoPlanCouldBeRun(t *testing.T) {
	var text strings.Builder
	r := &Report{Outcomes: failed(NotRun, "no room")}
	require.NoError(t, r.Summary(Details{}).WriteText(&text))
	require.Contains(t, text.String(), "No plan could be run, so nothing is known about the controller. The first: slow: no room, they say\n")
}

// Tables and prose fit a terminal, whatever the verdicts are. Only commands, paths and single words may be longer.
func TestWriteTextFitsATerminal(t *testing.T) {
	r := &Report{Outcomes: small().Outcomes}
	for _, v := range append(Verdicts, NotRun) {
		r.Outcomes = append(r.Outcomes, failed(v, strings.Repeat("it did what it should not, ", 10))...)
	}
	r.Outcomes[0].Notes = []string{strings.Repeat("it did more, ", 20)}
	var text strings.Builder
	require.NoError(t, r.Summary(Details{}).WriteText(&text))
	for line := range strings.SplitSeq(text.String(), "\n") {
		if !strings.HasPrefix(line, "slow ") { // all the verdicts there are
			require.LessOrEqual(t, len(line), 100, "%s", line)
		}
		require.Equal(t, strings.TrimRight(line, " "), line)
	}
}

func TestWriteJSON(t *testing.T) {
	var text strings.Builder
	r := small()
	r.Outcomes[2].History.Requests = r.Outcomes[2].History.Requests[4:5]
	r.Outcomes[3].History = r.Outcomes[2].History
	r.Outcomes = r.Outcomes[:4]
	r.retried(r.Outcomes[2])
	require.NoError(t, r.Summary(Details{}).WriteJSON(&text))
	require.Equal(t, `{
  "plans": 4,
  "failed": 1,
  "notMet": 1,
  "notRun": 0,
  "seconds": 83.4,
  "failures": [
    {
      "kind": "request lost",
      "faults": [
        "verb=delete,resource=pods,nth=1,lost=request"
      ],
      "verdict": "change lost",
      "cause": "old Pod",
      "message": "Pod a-1 still runs, 20s after the start",
      "confirmed": true,
      "seen": 2,
      "runs": 2,
      "requests": [
        "TIME     VERB     RESOURCE   OBJECT   STATUS   FAULT",
        "0.000s   delete   pods       a        -        request lost"
      ]
    },
    {
      "kind": "seed 3",
      "faults": [
        "verb=delete,kill=after",
        "delay=1s"
      ],
      "verdict": "died",
      "cause": "panic",
      "message": "it ended by itself, with exit status 2: panic: no",
      "confirmed": false,
      "requests": [
        "TIME     VERB     RESOURCE   OBJECT   STATUS   FAULT",
        "0.000s   delete   pods       a        -        request lost"
      ]
    }
  ]
}
`, text.String())
}

// Lists are never null.
func TestWriteJSONOfNothing(t *testing.T) {
	var text strings.Builder
	require.NoError(t, (&Report{Outcomes: []Outcome{{History: &history.History{}}}}).Summary(Details{}).WriteJSON(&text))
	require.JSONEq(t, `{"plans":1,"failed":0,"notMet":0,"notRun":0,"seconds":0,"failures":[]}`, text.String())
	text.Reset()
	require.NoError(t, (&Report{Outcomes: failed(Died, "no")}).Summary(Details{}).WriteJSON(&text))
	require.JSONEq(t, `{"plans":1,"failed":0,"notMet":0,"notRun":0,"seconds":0,"failures":[{"kind":"slow","faults":[],"verdict":"died","cause":"no","message":"no, they say","confirmed":false,"requests":[]}]}`, text.String())
}

func TestExcerpt(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1e9+int64(s), 0) }
	h := &history.History{}
	require.Empty(t, excerpt(Outcome{History: h}))
	for i := range 20 {
		h.Requests = append(h.Requests, history.Request{Start: at(i), Verb: "get", Resource: "pods", Name: fmt.Sprint("p", i), Status: 200})
	}
	h.Requests = append(h.Requests, history.Request{Start: at(20), Verb: "get", URI: "/healthz", Status: 200})
	names := func(o Outcome) (names []string) {
		for _, line := range excerpt(o)[1:] {
			if line == "…" {
				names = append(names, line)
				continue
			}
			names = append(names, strings.Fields(line)[3])
		}
		return names
	}
	require.Equal(t, []string{"p17", "p18", "p19"}, names(Outcome{History: h}), "without a fault, the last ones")
	h.Requests[3].Injected = []history.Injection{refusal}
	require.Equal(t, []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7"}, names(Outcome{History: h}), "those around the fault")
	require.Equal(t, []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7", "…", "p10", "p11", "p12", "p13", "p14", "p15", "p16"},
		names(Outcome{History: h, FailedAt: at(12)}), "and those of the step that failed")
	h.Requests[14].Verb = "create"
	require.Equal(t, []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7", "…", "p14"}, names(Outcome{History: h, Cause: "added pods p14"}), "and the write that the failure is about")
	h.Requests[14].Verb = "get"
	require.Equal(t, []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7", "…", "p18", "p19"}, names(Outcome{History: h, FailedAt: at(30)}))
}

package torture

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// failed are failures, by what they say.
func failed(verdict Verdict, whys ...string) []Outcome {
	var outcomes []Outcome
	for _, why := range whys {
		outcomes = append(outcomes, Outcome{Plan: Plan{Kind: "slow"}, Verdict: verdict, Why: why, History: &history.History{}})
	}
	return outcomes
}

func TestFailuresOfOneCauseAreAGroup(t *testing.T) {
	for name, c := range map[string]struct {
		whys   []string
		groups int
	}{
		"the same":                {[]string{"it is bad", "it is bad"}, 1},
		"others":                  {[]string{"it is bad", "it is worse"}, 2},
		"generated names":         {[]string{"Pod frontend-7d4b9c-x2k4z still runs", "Pod frontend-5f8d7b-abc9d still runs"}, 1},
		"other generated names":   {[]string{"Pod frontend-7d4b9c-x2k4z still runs", "Pod backend-5f8d7b-abc9d still runs"}, 1},
		"plain names":             {[]string{"Pod frontend still runs", "Pod backend still runs"}, 2},
		"plain names with a dash": {[]string{"Pod front-end still runs", "Pod back-end still runs"}, 2},
		"numbers":                 {[]string{"delete pods a: 3 times, should be 1", "delete pods a: 12 times, should be 1"}, 1},
		"times":                   {[]string{"there are 3 Pods, 20s after the start", "there are 4 Pods, 20s after the start"}, 1},
		"addresses":               {[]string{"panic: [recovered] 0xc0001a", "panic: [recovered] 0xc0fe"}, 1},
		"what it is after":        {[]string{"it is not, 20s after a", "it is not, 20s after b"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Report{Outcomes: failed(Lost, c.whys...)}
			groups := r.Groups()
			require.Len(t, groups, c.groups)
			require.Contains(t, c.whys, groups[0].Why)
			if c.groups == 1 {
				require.Equal(t, c.whys[0], groups[0].Why, "of the first")
			}
		})
	}
}

// Some generated names happen to have no digit.
func TestGeneratedNamesWithoutADigit(t *testing.T) {
	r := &Report{Outcomes: failed(Lost, "Pod frontend-x2k4z still runs", "Pod frontend-bcdfg still runs")}
	require.Len(t, r.Groups(), 1)
}

func TestGroups(t *testing.T) {
	r := &Report{}
	require.Empty(t, r.Groups())
	r.Outcomes = append(failed(Lost, "b 1"), append(failed(Died, "a 1", "a 2", "a 3"), failed(Lost, "a 4", "a 5")...)...)
	r.Outcomes[1].Plan.Kind = "watch cut"
	r.Outcomes[2].Plan.Kind = "answered 500"
	r.Outcomes = append(r.Outcomes, Outcome{Plan: Plan{Kind: "late"}, Verdict: Well})
	groups := r.Groups()
	require.Len(t, groups, 3)
	require.Equal(t, Died, groups[0].Verdict, "the largest comes first")
	require.Equal(t, "a 1", groups[0].Why)
	require.Equal(t, []string{"answered 500", "slow", "watch cut"}, groups[0].Kinds)
	require.Len(t, groups[0].Failures, 3)
	require.Equal(t, "a 4", groups[1].Why)
	require.Equal(t, []string{"slow"}, groups[1].Kinds)
	require.Equal(t, "b 1", groups[2].Why)
	require.Len(t, r.Failures(), 6)
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
	lost := []apiproxy.Fault{{Verb: "delete", Resource: "pods", From: 1, To: 1, Lost: apiproxy.LostRequest}}
	killed := []apiproxy.Fault{{Verb: "delete", Kill: apiproxy.After}, {Delay: time.Second}}
	return &Report{Duration: 83*time.Second + 400*time.Millisecond, Outcomes: []Outcome{
		{Plan: Plan{Kind: "slow"}, History: &history.History{}},
		{Plan: Plan{Kind: "slow"}, History: &history.History{}, Missed: true},
		{Plan: Plan{Kind: "request lost", Faults: lost}, Verdict: Lost, Why: "Pod a-1 still runs, 20s after the start", History: story},
		{Plan: Plan{Kind: "seed 3", Faults: killed}, Verdict: Died, Why: "it ended by itself, with exit status 2: panic: no", History: &history.History{}},
		{Plan: Plan{Kind: "seed 4", Faults: killed}, Verdict: Lost, Why: "Pod a-2 still runs, 20s after the start", History: &history.History{}},
	}}
}

func TestWriteText(t *testing.T) {
	var text strings.Builder
	require.NoError(t, small().WriteText(&text, func(p Plan) string { return "workshop torture " + p.String() + " -- shop" }))
	require.Equal(t, `FAULT          PLANS   WELL   CHANGE LOST   DIED   NOT MET
request lost   1       0      1             0      0
seeds          2       0      1             1      0
slow           2       2      0             0      1

1. change lost: Pod a-1 still runs, 20s after the start
   2 plans: request lost, seed 4
   replay: workshop torture --fault verb=delete,resource=pods,nth=1,lost=request -- shop
     TIME     VERB     RESOURCE                  OBJECT   STATUS   FAULT
     0.000s   list     configmaps                         200      
     0.010s   watch    pods                               200      
     1.020s   delete   pods                      shop/a   -        request lost
     1.030s   patch    deployments.apps/status   shop/d   200      
     1.980s   get      pods                      shop/a   200      
     1.980s   get      pods                      shop/a   200      
     1.980s   get      pods                      shop/a   200      

2. died: it ended by itself, with exit status 2: panic: no
   1 plan: seed 3
   replay: workshop torture --fault verb=delete,kill=after --fault delay=1s -- shop

5 plans, 3 failed; 1m23s
`, text.String())
}

// A failure that does not come again is said to be one.
func TestWriteTextOfWhatWasRunAgain(t *testing.T) {
	const again = "the first of them was run once more, and then it was: "
	r := small()
	lost, died := r.Outcomes[2].Plan.String(), r.Outcomes[3].Plan.String()
	for name, c := range map[string]struct {
		again map[string]Verdict
		want  []string
	}{
		"nothing":     {nil, nil},
		"the same":    {map[string]Verdict{lost: Lost, died: Died}, nil},
		"well":        {map[string]Verdict{lost: Well, died: Died}, []string{again + "well"}},
		"another one": {map[string]Verdict{lost: Well, died: TooMuch}, []string{again + "well", again + "did too much"}},
	} {
		t.Run(name, func(t *testing.T) {
			r.Again = c.again
			var text strings.Builder
			require.NoError(t, r.WriteText(&text, Plan.String))
			var got []string
			for line := range strings.Lines(text.String()) {
				if strings.Contains(line, "once more") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestWriteTextOfASuccess(t *testing.T) {
	var text strings.Builder
	r := &Report{Duration: time.Second, Outcomes: []Outcome{{Plan: Plan{Kind: "slow"}, History: &history.History{}}}}
	require.NoError(t, r.WriteText(&text, nil))
	require.Equal(t, `FAULT   PLANS   WELL   NOT MET
slow    1       1      0

1 plan, 0 failed; 1s
`, text.String())
}

func TestWriteJSON(t *testing.T) {
	var text strings.Builder
	r := small()
	r.Outcomes[2].History.Requests = r.Outcomes[2].History.Requests[4:5]
	r.Outcomes[3].History = r.Outcomes[2].History
	r.Outcomes = r.Outcomes[:4]
	require.NoError(t, r.WriteJSON(&text))
	require.Equal(t, `{
  "plans": 4,
  "failed": 2,
  "seconds": 83.4,
  "failures": [
    {
      "kind": "request lost",
      "faults": [
        "verb=delete,resource=pods,nth=1,lost=request"
      ],
      "verdict": "change lost",
      "why": "Pod a-1 still runs, 20s after the start",
      "story": [
        "TIME     VERB     RESOURCE   OBJECT   STATUS   FAULT",
        "0.000s   delete   pods       shop/a   -        request lost"
      ]
    },
    {
      "kind": "seed 3",
      "faults": [
        "verb=delete,kill=after",
        "delay=1s"
      ],
      "verdict": "died",
      "why": "it ended by itself, with exit status 2: panic: no",
      "story": [
        "TIME     VERB     RESOURCE   OBJECT   STATUS   FAULT",
        "0.000s   delete   pods       shop/a   -        request lost"
      ]
    }
  ]
}
`, text.String())
}

func TestWriteJSONOfASuccess(t *testing.T) {
	var text strings.Builder
	require.NoError(t, (&Report{Outcomes: []Outcome{{History: &history.History{}}}}).WriteJSON(&text))
	require.JSONEq(t, `{"plans":1,"failed":0,"seconds":0,"failures":[]}`, text.String())
}

// Lists are lists, also those that are empty.
func TestWriteJSONWithoutAStory(t *testing.T) {
	var text strings.Builder
	require.NoError(t, (&Report{Outcomes: failed(Died, "no")}).WriteJSON(&text))
	require.JSONEq(t, `{"plans":1,"failed":1,"seconds":0,"failures":[{"kind":"slow","faults":[],"verdict":"died","why":"no","story":[]}]}`, text.String())
}

// Where nothing was done to any request, the story is how it ended.
func TestStoryWithoutAFault(t *testing.T) {
	h := &history.History{}
	require.Empty(t, story(h))
	for _, name := range []string{"a", "b", "c", "d"} {
		h.Requests = append(h.Requests, history.Request{Verb: "get", Resource: "pods", Name: name, Status: 200})
	}
	h.Requests = append(h.Requests, history.Request{Verb: "get", URI: "/healthz", Status: 200})
	lines := story(h)
	require.Len(t, lines, 4)
	for i, name := range []string{"OBJECT", "b", "c", "d"} {
		require.Contains(t, strings.Fields(lines[i]), name)
	}
}

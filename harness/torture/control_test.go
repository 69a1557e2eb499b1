package torture

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

func TestChance(t *testing.T) {
	for _, c := range []struct {
		k, n, c, m int
		want       float64
	}{
		{0, 5, 3, 24, 1}, {5, 5, 5, 5, 1}, {1, 1, 0, 1, 0.5}, {2, 2, 2, 16, 6.0 / 153}, {5, 5, 1, 24, 0.0000505}, {0, 0, 1, 5, 1},
		{3, 8, 1, 24, (56*24 + 70) / 35960.0}, // the ways to choose 3 of 8 and 1 of 24, and 4 of 8, among those to choose 4 of 32
	} {
		require.InEpsilon(t, c.want, chance(c.k, c.n, c.c, c.m), 0.02, "%v", c)
	}
}

// A failure counts if it is more frequent with the fault than without it.
func TestConfirmedBesideControls(t *testing.T) {
	for name, c := range map[string]struct {
		failed, passed  int // further runs of the plan
		alone, controls int // runs without faults: those that failed likewise, and all
		others          int // of the controls, those that failed otherwise
		confirmed       bool
		text            string
	}{
		"never without the fault":         {failed: 8, controls: 24, confirmed: true, text: "failed like this in 9 of 9 runs; without its fault, 0 of 24 runs did"},
		"sometimes, and never without it": {failed: 3, passed: 5, controls: 24, confirmed: true},
		"once more in many":               {failed: 1, passed: 7, controls: 24, text: "Not counted, as it came again only once: change lost"},
		"once more, and no controls":      {failed: 1, confirmed: true, text: "in 2 of 2 runs"},
		"always, and always without it":   {failed: 8, alone: 24, controls: 24, text: "Not counted, as it comes without the fault, too: change lost"},
		"as often without it":             {failed: 2, passed: 6, alone: 6, controls: 24, text: "failed like this in 3 of 9 runs; without its fault, 6 of 24 runs did"},
		// With the first run, by which the plan was chosen, it would be 4 of 9, and significant.
		"a bit more often with it":     {failed: 3, passed: 5, alone: 2, controls: 24, text: "failed like this in 4 of 9 runs; without its fault, 2 of 24 runs did"},
		"clearly more often with it":   {failed: 4, passed: 4, alone: 2, controls: 24, confirmed: true},
		"often, and rarely without it": {failed: 7, passed: 1, alone: 1, controls: 24, confirmed: true},
		"something else without it":    {failed: 8, controls: 24, others: 24, confirmed: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Report{Outcomes: failed(Lost, "a")}
			for range c.failed {
				r.retried(r.Outcomes[0])
			}
			for range c.passed {
				r.retried(Outcome{Plan: r.Outcomes[0].Plan})
			}
			for i := range c.controls {
				o := Outcome{Plan: NoFault}
				if i < c.alone {
					o.Verdict, o.Cause = Lost, "a"
				} else if i < c.alone+c.others {
					o.Verdict, o.Cause = Died, "a"
				}
				r.Controls = append(r.Controls, o)
			}
			require.Equal(t, c.confirmed, r.Groups()[0].Confirmed())
			var text strings.Builder
			require.NoError(t, r.Summary(Details{}).WriteText(&text))
			require.Contains(t, strings.Join(strings.Fields(text.String()), " "), c.text)
		})
	}
}

// A plan whose fault did not come is a run without faults, too.
func TestControlsWithoutTheirFault(t *testing.T) {
	r := &Report{Outcomes: failed(Lost, "a", "a", "a"), Controls: []Outcome{{Plan: NoFault}}}
	for range 3 {
		r.retried(r.Outcomes[0])
	}
	r.Outcomes[1].NotMet, r.Outcomes[2].NotMet = true, true
	g := r.Groups()[0]
	require.Equal(t, []int{2, 3}, []int{g.Alone, g.Controls})
	require.False(t, g.Confirmed())
	r.Controls = nil
	require.False(t, r.Groups()[0].Confirmed(), "they failed all the same")
	r.Outcomes[1].Cause, r.Outcomes[2].Cause = "b", "b"
	require.True(t, r.Groups()[0].Confirmed(), "nothing was compared")
}

// The limits of how much a controller may do come from a few runs that had the machine to themselves. More runs, beside others, may show that
// it does more.
func TestJudgedAgain(t *testing.T) {
	of := func(writes, requests int) *observation {
		return &observation{effects: oracle.Effects{Did: map[string]int{"create pods a": writes}, Changes: map[string]int{}}, rest: quietTime{requests: requests}}
	}
	b, err := baselineOf(t, &Scenario{}, of(1, 0))
	require.NoError(t, err)
	b.steps = make([]stepBaseline, 1)
	outcome := func(verdict Verdict, seen *observation) Outcome {
		return Outcome{Plan: Plan{Kind: "slow"}, Verdict: verdict, Message: "so much", History: &history.History{}, seen: seen}
	}
	r := &Report{Baseline: b, Controls: []Outcome{outcome(TooMuch, of(2, 0)), outcome(NoRest, of(1, 3))}, Outcomes: []Outcome{
		outcome(TooMuch, of(2, 0)), outcome(TooMuch, of(3, 0)), outcome(NoRest, of(1, 8)), outcome(NoRest, of(1, 9)), outcome(Lost, nil), outcome(Different, of(1, 0)),
	}}
	r.retried(outcome(TooMuch, of(2, 0)))
	r.judgeAgain(&Scenario{})
	var verdicts []Verdict
	for _, o := range r.Outcomes {
		verdicts = append(verdicts, o.Verdict)
	}
	require.Equal(t, []Verdict{Passed, TooMuch, Passed, NoRest, Lost, Different}, verdicts)
	require.Contains(t, r.Outcomes[0].Notes[0], "until more runs without faults did the same: did too much: so much")
	require.Equal(t, Passed, r.Retried[Plan{Kind: "slow"}.Key()][0].Verdict)
	require.Equal(t, map[string]oracle.Range{"create pods a": {Min: 1, Max: 1}}, b.Expected.Did, "the baseline stays as it was")
}

// A few runs are enough where the fault decides each time, or where the failure is ruled out.
func TestDecided(t *testing.T) {
	for name, c := range map[string]struct {
		group Group
		want  bool
	}{
		"each time, and never without":       {Group{Seen: 5, Runs: 5, Controls: 8}, true},
		"not each time":                      {Group{Seen: 4, Runs: 5, Controls: 8}, false},
		"each time, and once without":        {Group{Seen: 5, Runs: 5, Alone: 1, Controls: 8}, false},
		"as often without":                   {Group{Seen: 5, Runs: 5, Alone: 8, Controls: 8}, true},
		"not compared":                       {Group{Seen: 2, Runs: 2}, false},
		"twice of a few":                     {Group{Seen: 2, Runs: 5, Controls: 8}, false},
		"only once more in all of many runs": {Group{Seen: 2, Runs: 10, Controls: 24}, true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.group.isDecided()) })
	}
}

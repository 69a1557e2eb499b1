package torture

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

func parsePlan(t *testing.T, kind string, faults ...string) Plan {
	t.Helper()
	plan := Plan{Kind: kind}
	for _, text := range faults {
		fault, err := apiproxy.ParseFault(text)
		require.NoError(t, err)
		plan.Faults = append(plan.Faults, fault)
	}
	return plan
}

func TestPlansComeBack(t *testing.T) {
	plans := []Plan{NoFault, parsePlan(t, "answered 500", "verb=create,resource=pods,nth=2,refuse=500"), parsePlan(t, "seed 7", "verb=watch,resource=pods,late=2s", "verb=delete,nth=1,kill=after")}
	var text bytes.Buffer
	require.NoError(t, WritePlans(&text, plans))
	again, err := ReadPlans(&text)
	require.NoError(t, err)
	require.Len(t, again, 3)
	for i := range plans {
		require.Equal(t, plans[i].Kind, again[i].Kind)
		require.Equal(t, plans[i].String(), again[i].String())
	}

	_, err = ReadPlans(strings.NewReader(`{"kind":"a"}` + "\n" + `{"kind":"b","faults":["refuse=maybe"]}`))
	require.ErrorContains(t, err, "plan 2: ")
	_, err = ReadPlans(strings.NewReader(`{"kind":`))
	require.ErrorContains(t, err, "plan 1: ")
}

// Each plan is in one share.
func TestShare(t *testing.T) {
	var all []int
	for index := range 3 {
		share := Share(8, index, 3)
		require.GreaterOrEqual(t, len(share), 2)
		all = append(all, share...)
	}
	slices.Sort(all)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, all)
	require.Empty(t, Share(2, 2, 3))
}

func TestOutcomesComeBack(t *testing.T) {
	passed := Outcome{Plan: NoFault, Duration: time.Second, NotMet: true, History: &history.History{}}
	failed := small().Outcomes[2]
	failed.Log = "I1122 failed\n"
	failed.History.Requests = slices.Clone(failed.History.Requests)
	for i := range failed.History.Requests {
		failed.History.Requests[i].ID = int64(i) + 1
	}
	var text bytes.Buffer
	w := NewOutcomeWriter(&text)
	require.NoError(t, w.Write(4, passed))
	require.NoError(t, w.Write(9, failed))
	lines := bytes.Split(bytes.TrimSpace(text.Bytes()), []byte("\n"))
	require.Len(t, lines, 2)

	number, again, err := ReadOutcome(lines[0])
	require.NoError(t, err)
	require.Equal(t, 4, number)
	require.Equal(t, passed, again)

	number, again, err = ReadOutcome(lines[1])
	require.NoError(t, err)
	require.Equal(t, 9, number)
	require.Equal(t, failed.Verdict, again.Verdict)
	require.Equal(t, failed.Cause, again.Cause)
	require.Equal(t, failed.Log, again.Log)
	require.Len(t, again.History.Requests, len(failed.History.Requests))

	_, _, err = ReadOutcome(lines[1][:40])
	require.Error(t, err)
}

// A machine on which everything fails still reports every outcome.
func TestEvidenceIsLimited(t *testing.T) {
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	failed := Outcome{Plan: NoFault, Verdict: Lost, Log: string(noise), History: &history.History{}}
	var text bytes.Buffer
	w := NewOutcomeWriter(&text)
	for n := range 20 {
		require.NoError(t, w.Write(n, failed))
	}
	require.Less(t, text.Len(), 2*maxEvidence)
	lines := bytes.Split(bytes.TrimSpace(text.Bytes()), []byte("\n"))
	require.Len(t, lines, 20)
	_, last, err := ReadOutcome(lines[19])
	require.NoError(t, err)
	require.Equal(t, Lost, last.Verdict)
	require.Contains(t, last.Log, "Replay the plan to see them")
}

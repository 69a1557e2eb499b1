package torture

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

func TestJudge(t *testing.T) {
	did := func(n int) oracle.Effects { return oracle.Effects{Did: map[string]int{"patch pods a": n}} }
	write := history.Request{Verb: "patch", Resource: "pods", Namespace: "torture-1", Name: "a", Status: 200}
	deleted := oracle.Change{Type: watch.Deleted, Resource: "pods", New: oracle.Object{"metadata": map[string]any{"name": "b"}}}
	for name, c := range map[string]struct {
		scenario Scenario
		seen     observation
		want     *Failure
		notes    []string
	}{
		"as without faults": {seen: observation{effects: did(2)}},
		"it writes at rest": {
			seen: observation{effects: did(2), rest: quietTime{writes: []history.Request{write, write}}},
			want: &Failure{NoRest, "writes patch pods", "2 writes in 2s in which nothing happens, for example patch pods a"},
		},
		"it undoes its work at rest": {
			seen: observation{effects: did(2), rest: quietTime{diverged: &oracle.Violation{Rule: "size(pods) == 1", Message: "torture-1/a is gone"}}},
			want: &Failure{NoRest, "converged size(pods) == 1", "it had converged, and then it had not: a is gone"},
		},
		"it gives up a request": {
			seen:  observation{effects: did(2), cutOff: []history.Request{write}},
			notes: []string{"it gave up a request in flight when it was told to stop: patch pods a"},
		},
		"it gives up a write, and leaves its end half done": {
			seen:  observation{effects: did(2), end: []string{}, cutOff: []history.Request{write}},
			notes: []string{"it gave up a request in flight when it was told to stop: patch pods a"},
		},
		"another end, before it gives up a write": {
			seen:  observation{effects: did(2), endAtRest: []string{}, cutOff: []history.Request{write}},
			want:  &Failure{Different, "missing pod a", "pod a is missing"},
			notes: []string{"it gave up a request in flight when it was told to stop: patch pods a"},
		},
		"it gives up a request, and promises to drain": {
			scenario: Scenario{Drains: true},
			seen:     observation{effects: did(2), cutOff: []history.Request{write}},
			want:     &Failure{NoStop, "cuts off", "it gave up a request in flight when it was told to stop: patch pods a"},
		},
		"an invariant": {
			seen: observation{effects: did(2), violation: &oracle.Violation{Rule: "false", Message: "no"}, change: deleted},
			want: &Failure{RuleBroken, "false", "no (DELETED pods b)"},
		},
		"as many attempts as it may": {
			scenario: Scenario{MostTries: 2},
			seen:     observation{effects: did(2), attempts: []map[string]int{{"delete pods a": 2}, {"delete pods a": 2}}},
		},
		"any number of attempts": {seen: observation{effects: did(2), attempts: []map[string]int{{"delete pods a": 200}}}},
		"too many attempts": {
			scenario: Scenario{MostTries: 2},
			seen:     observation{effects: did(2), attempts: []map[string]int{{"delete pods a": 2}, {"delete pods b": 3}}},
			want:     &Failure{NoRest, "attempts delete pods", "delete pods b: tried 3 times in one step, should be 2 at most"},
		},
		"another end": {
			seen: observation{effects: did(2), end: []string{`pods {"metadata":{"name":"a"},"x":2}`, `pods {"metadata":{"name":"b"}}`}},
			want: &Failure{Different, "changed pod a x; unexpected pod b", "pod a: x is 2, should be 1; pod b should not exist"},
		},
		"as many requests as it may": {seen: observation{effects: did(2), rest: quietTime{requests: 8}}},
		"too many requests": {
			seen: observation{effects: did(2), rest: quietTime{requests: 9}},
			want: &Failure{NoRest, "requests", "9 requests in 2s in which nothing happens; without faults there are 3 at most"},
		},
		"as many Events": {seen: observation{effects: did(2), rest: quietTime{events: 1}}},
		"too many Events": {
			seen: observation{effects: did(2), rest: quietTime{events: 2}},
			want: &Failure{NoRest, "events", "2 Events in 2s in which nothing happens; without faults there are 1 at most"},
		},
		"an Event that could not be written before": {seen: observation{effects: did(2), rest: quietTime{events: 2, eventsLate: 1}}},
		"an Event of a reconcile that was repeated": {seen: observation{
			effects: oracle.Effects{Did: map[string]int{"patch pods a": 2}, Disturbed: 1}, rest: quietTime{events: 2}}},
		"too many writes": {
			seen: observation{effects: did(3)},
			want: &Failure{TooMuch, "patch pods a", "patch pods a: 3 times, should be 2"},
		},
		"one more update after a fault": {seen: observation{effects: did(3), injected: 1}},
		"fewer updates with the right end": {
			seen:  observation{effects: did(1)},
			notes: []string{"patch pods a: once, should be 2"},
		},
		"an object was not replaced": {
			seen: observation{effects: oracle.Effects{Did: map[string]int{"patch pods a": 2}, Changes: map[string]int{"added pods a": 0}}},
			want: &Failure{TooLittle, "added pods a", "added pods a: 0 times, should be 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.scenario.Quiet = metav1.Duration{Duration: 2 * time.Second}
			end := []string{`pods {"metadata":{"name":"a"},"x":1}`}
			effects := did(2)
			effects.Changes = map[string]int{"added pods a": 1}
			b, err := baselineOf(t, &c.scenario, &observation{end: end, effects: effects, rest: quietTime{requests: 3, events: 1}})
			require.NoError(t, err)
			for _, of := range []*[]string{&c.seen.end, &c.seen.endAtRest} {
				if *of == nil {
					*of = end
				}
			}
			failure, notes := c.scenario.judgeAgainst(b, &c.seen, "torture-1")
			require.Equal(t, c.want, failure)
			require.Equal(t, c.notes, notes)
		})
	}
}

// Without a baseline, a run is judged by the rules alone.
func TestJudgeWithoutABaseline(t *testing.T) {
	s := &Scenario{Quiet: metav1.Duration{Duration: time.Second}}
	failure, notes := s.judge(&observation{end: []string{"anything"}, rest: quietTime{requests: 1000, events: 1000}}, "torture-1")
	require.Nil(t, failure)
	require.Empty(t, notes)
	failure, _ = s.judge(&observation{violation: &oracle.Violation{Rule: "false", Message: "no"}}, "torture-1")
	require.Equal(t, RuleBroken, failure.Verdict)
}

func TestCauseOfOutput(t *testing.T) {
	const cause = ": panic: runtime error: index out of range [#] with length #"
	require.Equal(t, cause, causeOfOutput(": panic: runtime error: index out of range [3] with length 2"))
	require.Equal(t, causeOfOutput(": cannot reach 10.0.0.1:443: 0xc0001a"), causeOfOutput(": cannot reach 10.0.0.2:6443: 0xc0fe"))
	require.NotEqual(t, causeOfOutput(": no such host"), causeOfOutput(": connection refused"))
	refused := func(request string) string {
		return causeOfOutput(": cannot start: " + apiproxy.Refused + " (" + request + "): an error")
	}
	require.Equal(t, refused("verb=get,refuse=500"), refused("verb=list,refuse=503"))
	require.NotEqual(t, refused("verb=get"), causeOfOutput(": cannot go on: "+apiproxy.Refused+" (verb=get)"))
}

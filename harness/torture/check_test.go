package torture

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// A check says in which states a rule did not hold, which rules held all the time, and which are about nothing.
func TestCheckLooksAtEachState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakeCluster(t)
		pods, secrets := corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithResource("secrets")
		r := settledOn(t, cluster, []schema.GroupVersionResource{pods, secrets}, &Scenario{
			Resources: []string{"pods", "secrets"},
			Ready:     []oracle.Condition{{Rule: "size(pods) == 0"}},
			Converged: []oracle.Condition{
				{Rule: "size(pods) == 2", Message: `"there are " + string(size(pods)) + " Pods"`},
				{Rule: "pods.all(p, p.metadata.name != '')"},
				{Rule: "secrets.all(s, s.type == 'nonsense')"},
			},
			Steps: []Step{{Name: "one", When: []oracle.Condition{{Rule: "size(pods) == 1"}}, Do: []Action{{Controller: "stop"}}}},
		})
		synctest.Wait()
		add := func(name, version string) {
			_, err := cluster.Resource(pods).Namespace("torture-1").Create(t.Context(), fakePod(name, version), metav1.CreateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		r.launched, r.stepStarts = time.Now(), []time.Time{time.Now()}
		time.Sleep(time.Second)
		add("a", "1")
		time.Sleep(time.Second)
		r.stepStarts = append(r.stepStarts, time.Now())
		add("b", "2")
		var c Check
		c.look(r)
		require.Equal(t, []ObjectsSeen{{"pods", 1, 2, []string{"a", "b"}}, {"secrets", 0, 0, nil}}, c.Objects)
		require.True(t, c.Waits())
		one := &Sighting{"at the start", "there are 1 Pods", time.Second}
		require.Equal(t, []RuleSeen{
			{Part: "ready", Rule: "size(pods) == 0"},
			{Part: "converged", Rule: "size(pods) == 2", States: 2, Held: 1, First: one, Last: one},
			{Part: "converged", Rule: "pods.all(p, p.metadata.name != '')", States: 2, Held: 2},
			{Part: "converged", Rule: "secrets.all(s, s.type == 'nonsense')", States: 2, Held: 2, Unseen: []string{"secrets"}},
			{Part: "when of one", Rule: "size(pods) == 1", States: 1, Held: 1},
		}, c.Rules)
	})
}

func TestCheckText(t *testing.T) {
	text := func(c Check) string {
		var b strings.Builder
		require.NoError(t, c.WriteText(&b))
		return b.String()
	}
	seen := []ObjectsSeen{{"configmaps", 0, 1, nil}, {"pods", 1, 5, []string{"a", "b", "c", "d", "e"}}}
	first, last := &Sighting{Step: "before the controller was started", Message: "none"}, &Sighting{Step: `in the step "x"`, After: 1500 * time.Millisecond}
	c := Check{
		Outcome: Outcome{Verdict: Passed, Duration: 2 * time.Second}, Objects: seen, Kinds: map[string]int{"slow": 3, "lease lost": 0},
		Rules: []RuleSeen{
			{Part: "converged", Rule: "size(pods)\n== 5", States: 4, Held: 1, First: first, Last: last},
			{Part: "invariants", Rule: "true", States: 9, Held: 9, Unseen: []string{"configmaps"}},
			{Part: "invariants", Rule: "1 == 1"},
		},
	}
	require.Equal(t, `A run without faults passed, in 2s.

Objects that rules can see:
  configmaps: 0 to 1 at a time; in the end: none
    kube-root-ca.crt, which is in every namespace, is hidden from them
  pods: 1 to 5 at a time; in the end: a, b, c, d and 1 more

converged:
- size(pods) == 5
  held in 1 of 4 states; did not hold before the controller was started: none
  and last 1.5s after the controller was started, in the step "x"

invariants:
- true
  held in each of 9 states
  there was never an object of configmaps, so it says nothing about them
- 1 == 1
  no object changed while it was waited for

There are 3 plans. Kinds of fault that cannot come in this scenario: lease lost.
`, text(c))
	c.Rules = c.Rules[1:]
	require.Contains(t, text(c), "the scenario does not wait for the controller")

	c.Outcome = Outcome{Verdict: Lost, Message: "no Pods", Log: "boom", History: &history.History{Requests: []history.Request{{Verb: "list", Resource: "pods", Status: http.StatusForbidden}}}}
	c.Kinds = nil
	require.Contains(t, text(c), "A run without faults failed: change lost: no Pods\n")
	require.Contains(t, text(c), "boom")
	require.NotContains(t, text(c), "Kinds of fault")
	require.NotContains(t, text(c), "does not wait")
}

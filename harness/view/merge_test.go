package view_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
)

// A proxy that holds events back is in front of one that records all, and kubectl does not go through it.
func TestSeveralRecordings(t *testing.T) {
	var outer, inner recorder
	w := outer.request(0, 1, "loop", "watch", "", open)
	outer.event(w, 2, "ADDED", "a", "10")
	outer.event(w, 512, "MODIFIED", "a", "20")
	outer.request(600, 610, "loop", "patch", "a", func(q *history.Request) { q.Status, q.Error = 0, "reply lost" })
	outer.request(700, 704, "loop", "get", "a", after("30"))
	outer.request(710, 714, "loop", "get", "a", after("30"))

	w = inner.request(0.5, 1, "loop", "watch", "", open)
	inner.event(w, 1, "ADDED", "a", "10")
	inner.request(10, 12, "kubectl", "patch", "a", after("20"))
	inner.event(w, 11.5, "MODIFIED", "a", "20")
	inner.request(602, 608, "loop", "patch", "a", after("30"))
	inner.event(w, 609, "MODIFIED", "a", "30")
	inner.request(701, 703, "loop", "get", "a", after("30"))
	inner.request(711, 713, "loop", "get", "a", after("30"))
	for _, recordings := range [][]*history.History{
		{history.Of(outer.records...), history.Of(inner.records...)},
		{history.Of(inner.records...), history.Of(outer.records...)},
	} {
		m := view.Of("test", recordings...)
		require.Len(t, m.Marks, 5, "a request that both have is one")
		require.Len(t, m.Events, 2)
		require.Equal(t, `
1-11.5 v10 late
11.5-609 v20 by kubectl
609-714 v30 by loop
loop 2-11.5 knew 0 had 0 lag 0
loop 11.5-512 knew 0 had 1 lag 500.5
loop 512-609 knew 1 had 1 lag 0
loop 609-714 knew 1 had 2 lag 105
`, "\n"+lane(m, "a"))
	}
}

// Programs of the same name that do the same at the same time, in one recording, are not taken for one.
func TestOneRecordingHasNoDuplicates(t *testing.T) {
	var one, other recorder
	one.request(0, 10, "loop", "get", "a", nil)
	one.request(1, 9, "loop", "get", "a", nil)
	other.request(20, 30, "loop", "get", "a", nil)
	require.Len(t, view.Of("test", history.Of(one.records...), history.Of(other.records...)).Marks, 3)
}

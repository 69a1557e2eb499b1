package view_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/internal/recorded"
)

// A proxy that holds events back is in front of one that records all, and kubectl does not go through it.
func TestSeveralRecordings(t *testing.T) {
	var outer, inner recorded.Recorder
	w := outer.Request(0, 1, "loop", "watch", "", recorded.Open)
	outer.Event(w, 2, "ADDED", "a", "10")
	outer.Event(w, 512, "MODIFIED", "a", "20")
	outer.Request(600, 610, "loop", "patch", "a", func(q *history.Request) { q.Status, q.Error = 0, "reply lost" })
	outer.Request(700, 704, "loop", "get", "a", recorded.After("30"))
	outer.Request(710, 714, "loop", "get", "a", recorded.After("30"))

	w = inner.Request(0.5, 1, "loop", "watch", "", recorded.Open)
	inner.Event(w, 1, "ADDED", "a", "10")
	inner.Request(10, 12, "kubectl", "patch", "a", recorded.After("20"))
	inner.Event(w, 11.5, "MODIFIED", "a", "20")
	inner.Request(602, 608, "loop", "patch", "a", recorded.After("30"))
	inner.Event(w, 609, "MODIFIED", "a", "30")
	inner.Request(701, 703, "loop", "get", "a", recorded.After("30"))
	inner.Request(711, 713, "loop", "get", "a", recorded.After("30"))
	for _, recordings := range [][]*history.History{
		{history.Of(outer.Records...), history.Of(inner.Records...)},
		{history.Of(inner.Records...), history.Of(outer.Records...)},
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
	var one, other recorded.Recorder
	one.Request(0, 10, "loop", "get", "a", nil)
	one.Request(1, 9, "loop", "get", "a", nil)
	other.Request(20, 30, "loop", "get", "a", nil)
	require.Len(t, view.Of("test", history.Of(one.Records...), history.Of(other.Records...)).Marks, 3)
}

package history

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	h := Of(
		Record{Event: &Event{Request: 7, Time: at.Add(3 * time.Second), Type: "ADDED", Resource: "pods", Name: "a", ResourceVersion: "5"}},
		Record{Request: &Request{ID: 7, Start: at.Add(time.Second), Verb: "watch", Resource: "pods", URI: "/api/v1/pods?watch=true", Status: 200}},
		Record{Sample: &Sample{Time: at.Add(5 * time.Second), Program: "loop", Metric: "workqueue_depth", Of: "pods", Value: 3}},
		Record{Process: &Process{Time: at, Program: "loop", State: Running}},
		Record{Process: &Process{Time: at.Add(4 * time.Second), Program: "loop", State: Killed, Why: "by a fault"}},
		Record{Seen: &Event{Time: at.Add(2 * time.Second), Type: "ADDED", Resource: "pods", Name: "a", ResourceVersion: "5"}},
		Record{Step: &Step{Time: at, Name: "the start"}},
	)
	var text bytes.Buffer
	var times []time.Time
	for _, record := range h.Records() {
		require.NoError(t, Write(&text, record))
		times = append(times, record.at())
	}
	for i, offset := range []time.Duration{0, 0, 1, 2, 3, 4, 5} {
		require.Equal(t, at.Add(offset*time.Second), times[i])
	}
	again, err := Read(&text)
	require.NoError(t, err)
	require.Equal(t, h, again)

	part := again.Between(at.Add(2*time.Second), at.Add(4*time.Second))
	require.Empty(t, part.Steps)
	require.Len(t, part.Seen, 1)
	require.Empty(t, part.Processes)
	part = again.Between(at.Add(4*time.Second), time.Time{})
	require.Equal(t, []Process{h.Processes[1]}, part.Processes)
	require.Equal(t, h.Samples, part.Where(func(Request) bool { return false }).Samples)
}

package history_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/controllers/harness/history"
)

var epoch = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// anyRecord draws a record of any kind, at one of a few times and with one of a few IDs, so that both repeat. Its number
// tells it from all others.
func anyRecord(t *rapid.T, number int) history.Record {
	at := epoch.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "time")) * time.Second)
	event := &history.Event{Request: rapid.Int64Range(1, 10).Draw(t, "watch"), Time: at, Type: "ADDED", Resource: "pods", Bytes: number}
	switch rapid.SampledFrom([]string{"request", "request", "event", "seen", "step", "process", "sample"}).Draw(t, "kind") {
	case "event":
		return history.Record{Event: event}
	case "seen":
		return history.Record{Seen: event}
	case "step":
		return history.Record{Step: &history.Step{Time: at, Name: fmt.Sprint(number)}}
	case "process":
		return history.Record{Process: &history.Process{Time: at, Why: fmt.Sprint(number)}}
	case "sample":
		return history.Record{Sample: &history.Sample{Time: at, Value: float64(number)}}
	}
	return history.Record{Request: &history.Request{
		ID: rapid.Int64Range(1, 10).Draw(t, "id"), Start: at, Sent: int64(number), Verb: rapid.SampledFrom([]string{"get", "watch"}).Draw(t, "verb"),
	}}
}

// anyRecords draws records of which most are in order, as they are in a recording, or of which none need be.
func anyRecords(t *rapid.T) []history.Record {
	var records []history.Record
	for number := range rapid.IntRange(0, 60).Draw(t, "records") {
		records = append(records, anyRecord(t, number))
	}
	if rapid.Bool().Draw(t, "in order") {
		records = history.Of(records...).Records()
	}
	return records
}

// However the records come, and whenever somebody looks, the history is that of all records so far, and does not change later.
func TestMemoryIsAsOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var memory history.Memory
		var snapshots, wanted []*history.History
		records := anyRecords(t)
		look := func(so int) {
			snapshots, wanted = append(snapshots, memory.History()), append(wanted, history.Of(records[:so]...))
		}
		for i, r := range records {
			if rapid.Bool().Draw(t, "look") {
				look(i)
			}
			memory.Record(r)
		}
		look(len(records))
		require.Equal(t, wanted, snapshots)
	})
}

// Who appends to what a snapshot has does not write into a later one.
func TestMemoryIsNotAppendedTo(t *testing.T) {
	var memory history.Memory
	at := func(second int) history.Record {
		return history.Record{Request: &history.Request{ID: int64(second), Start: epoch.Add(time.Duration(second) * time.Second)}}
	}
	for second := range 10 {
		memory.Record(at(second))
	}
	before := memory.History().Requests
	memory.Record(at(10))
	after := memory.History().Requests
	_ = append(before, history.Request{ID: 99})
	_ = append(memory.History().Between(epoch, epoch.Add(2*time.Second)).Requests, history.Request{ID: 99})
	for i, r := range after {
		require.Equal(t, int64(i), r.ID)
	}
}

func TestSince(t *testing.T) {
	var memory history.Memory
	one, two := history.Record{Step: &history.Step{Name: "one"}}, history.Record{Step: &history.Step{Name: "two"}}
	records, cursor := memory.Since(0)
	require.Empty(t, records)
	memory.Record(one)
	records, cursor = memory.Since(cursor)
	require.Equal(t, []history.Record{one}, records)
	memory.Record(two)
	all, _ := memory.Since(0)
	require.Equal(t, []history.Record{one, two}, all)
	records, cursor = memory.Since(cursor)
	require.Equal(t, []history.Record{two}, records)
	records, _ = memory.Since(cursor)
	require.Empty(t, records)
}

// With several writers at once, a follower gets each record once, and histories are of a moment.
func TestMemoryConcurrently(t *testing.T) {
	const writers, each = 4, 300
	var memory history.Memory
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for n := range each {
				id := int64(writer*each + n + 1)
				r := history.Request{ID: id, Start: time.Now(), Verb: "watch", Open: true}
				memory.Record(history.Record{Request: &r})
				memory.Record(history.Record{Event: &history.Event{Request: id, Time: time.Now()}})
				if n%10 == 0 {
					ended := r
					ended.Open = false
					memory.Record(history.Record{Request: &ended})
				}
			}
		})
	}
	group.Go(func() { // looks at all of every history
		for last := 0; last < writers*each; {
			h := memory.History()
			require.GreaterOrEqual(t, len(h.Requests), last)
			require.True(t, slices.IsSortedFunc(h.Requests, func(a, b history.Request) int { return a.Start.Compare(b.Start) }))
			require.True(t, slices.IsSortedFunc(h.Events, func(a, b history.Event) int { return a.Time.Compare(b.Time) }))
			last = len(h.Requests)
		}
	})
	got := map[int64]int{}
	for cursor := 0; len(got) < writers*each; {
		changed := memory.Changed()
		var records []history.Record
		if records, cursor = memory.Since(cursor); len(records) == 0 {
			<-changed
		}
		for _, r := range records {
			if r.Event != nil {
				got[r.Event.Request]++
			}
		}
	}
	group.Wait()
	for id, times := range got {
		require.Equal(t, 1, times, "events of the watch %d", id)
	}
	records, _ := memory.Since(0)
	require.Equal(t, history.Of(records...), memory.History())
}

// A part has what is in it, and the watches that its events are of.
func TestBetweenSelects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := history.Of(anyRecords(t)...)
		limit := func(name string) time.Time {
			if rapid.Bool().Draw(t, "no "+name) {
				return time.Time{}
			}
			return epoch.Add(time.Duration(rapid.IntRange(-1, 21).Draw(t, name)) * time.Second)
		}
		from, to := limit("from"), limit("to")
		in := func(at time.Time) bool {
			return (from.IsZero() || !at.Before(from)) && (to.IsZero() || at.Before(to))
		}
		part := h.Between(from, to)
		require.Equal(t, selected(h.Requests, func(r history.Request) bool { return in(r.Start) }), part.Requests)
		require.Equal(t, selected(h.Events, func(e history.Event) bool { return in(e.Time) }), part.Events)
		require.Equal(t, selected(h.Seen, func(e history.Event) bool { return in(e.Time) }), part.Seen)
		require.Equal(t, selected(h.Steps, func(s history.Step) bool { return in(s.Time) }), part.Steps)
		require.Equal(t, selected(h.Processes, func(p history.Process) bool { return in(p.Time) }), part.Processes)
		require.Equal(t, selected(h.Samples, func(s history.Sample) bool { return in(s.Time) }), part.Samples)
		// Where keeps the events of the watches that the part knows.
		isWatch := map[int64]bool{}
		for _, r := range h.Requests {
			isWatch[r.ID] = r.Verb == "watch" || in(r.Start)
		}
		known := selected(part.Events, func(e history.Event) bool { return isWatch[e.Request] })
		all := func(history.Request) bool { return true }
		require.Equal(t, known, part.Where(all).Events)
		require.Equal(t, known, part.Between(from, to).Where(all).Events)
	})
}

// selected returns the elements for which in returns true; nil if there are none.
func selected[T any](all []T, in func(T) bool) (some []T) {
	for _, one := range all {
		if in(one) {
			some = append(some, one)
		}
	}
	return some
}

// recorded returns a recording as it comes from a proxy: requests of some milliseconds, recorded when they end, and watches that
// are recorded twice, with events in between.
func recorded(count int) []history.Record {
	var records []history.Record
	for n := range count {
		at, id := epoch.Add(time.Duration(n)*time.Millisecond), int64(n+1)
		switch {
		case n%2 == 1:
			records = append(records, history.Record{Event: &history.Event{Request: 1, Time: at, Type: "MODIFIED", Resource: "pods", Name: "a"}})
		case n%1000 == 0: // a watch begins; that of before ends
			if id > 1000 {
				records = append(records, history.Record{Request: &history.Request{ID: id - 1000, Start: at.Add(-time.Second), Verb: "watch"}})
			}
			records = append(records, history.Record{Request: &history.Request{ID: id, Start: at, Verb: "watch", Open: true}})
		default:
			took := time.Duration(n%7) * time.Millisecond
			records = append(records, history.Record{Request: &history.Request{ID: id, Start: at.Add(-took), Duration: took, Verb: "get"}})
		}
	}
	return records
}

// BenchmarkFollow follows a recording of 20,000 records, and looks at its history after every 20 of them, as often as a loop
// does that looks every 50 ms while 400 records come a second. "of" is how Memory did it before.
func BenchmarkFollow(b *testing.B) {
	const count, each = 20_000, 20
	records := recorded(count)
	follow := func(look func(memory *history.Memory) *history.History) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				var memory history.Memory
				for i, r := range records {
					memory.Record(r)
					if (i+1)%each == 0 {
						look(&memory)
					}
				}
			}
		}
	}
	b.Run("of", follow(func(memory *history.Memory) *history.History {
		all, _ := memory.Since(0)
		return history.Of(all...)
	}))
	b.Run("incremental", follow((*history.Memory).History))
}

// BenchmarkBetween looks at the last 100 ms of a recording of 20,000 records.
func BenchmarkBetween(b *testing.B) {
	const count = 20_000
	h := history.Of(recorded(count)...)
	from := epoch.Add((count - 100) * time.Millisecond)
	for b.Loop() {
		h.Between(from, time.Time{})
	}
}

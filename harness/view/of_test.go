package view_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
)

var start = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// recorder makes recordings of nodes, in milliseconds since start.
type recorder struct {
	records []history.Record
	id      int64
}

func at(ms float64) time.Time {
	return start.Add(time.Duration(ms * float64(time.Millisecond)))
}

// request adds a request for a Node, or for all if name is "".
func (r *recorder) request(from, to float64, program, verb, name string, edit func(*history.Request)) int64 {
	r.id++
	q := history.Request{ID: r.id, Start: at(from), Duration: at(to).Sub(at(from)), Agent: program + "/v1", Verb: verb, Version: "v1", Resource: "nodes",
		Name: name, URI: "/api/v1/nodes/" + name, Status: 200}
	if edit != nil {
		edit(&q)
	}
	r.records = append(r.records, history.Record{Request: &q})
	return q.ID
}

func (r *recorder) event(watch int64, ms float64, kind, name, rv string) {
	r.records = append(r.records, history.Record{Event: &history.Event{Request: watch, Time: at(ms), Type: kind, Resource: "nodes", Name: name, ResourceVersion: rv}})
}

func (r *recorder) late(watch int64, came, ms float64, kind, name, rv string) {
	r.event(watch, ms, kind, name, rv)
	r.records[len(r.records)-1].Event.Came = at(came)
}

func (r *recorder) model() *view.Model { return view.Of("test", history.Of(r.records...)) }

func after(rv string) func(*history.Request) {
	return func(q *history.Request) { q.RVAfter = rv }
}

func open(q *history.Request) { q.Open = true }

// lane prints a lane, a line for each version and for what each program knew when.
func lane(m *view.Model, name string) string {
	var out strings.Builder
	for _, l := range m.Lanes {
		if l.Name != name {
			continue
		}
		for _, v := range l.Versions {
			fmt.Fprintf(&out, "%g-%g v%s", v.From, v.To, v.RV)
			for word, is := range map[string]bool{" late": v.Late, " created": v.Created, " deleting": v.Deleting, " gone": v.Gone} {
				if is {
					fmt.Fprint(&out, word)
				}
			}
			if v.Mark >= 0 {
				fmt.Fprintf(&out, " by %s", m.Programs[m.Marks[v.Mark].Program])
			}
			fmt.Fprintln(&out)
		}
		for _, t := range l.Told {
			for _, s := range t.Spans {
				fmt.Fprintf(&out, "%s %g-%g knew %d had %d lag %g", m.Programs[t.Program], s.From, s.To, s.Knew, s.Had, s.Lag)
				if s.Off {
					fmt.Fprint(&out, " off")
				}
				fmt.Fprintln(&out)
			}
		}
	}
	return out.String()
}

func TestLanes(t *testing.T) {
	for name, test := range map[string]struct {
		record func(r *recorder)
		want   string
	}{
		"a cache that is behind, and a write of one's own": {func(r *recorder) {
			w := r.request(0, 1, "loop", "watch", "", open)
			r.event(w, 2, "ADDED", "a", "10")
			r.request(10, 12, "kubectl", "patch", "a", after("20"))
			r.late(w, 11, 511, "MODIFIED", "a", "20")
			r.request(600, 602, "loop", "patch", "a", after("30"))
			r.event(w, 603, "MODIFIED", "a", "30")
			r.request(1000, 1000, "kubectl", "get", "b", nil)
		}, `
2-11 v10 late
11-602 v20 by kubectl
602-1000 v30 by loop
loop 2-11 knew 0 had 0 lag 0
loop 11-511 knew 0 had 1 lag 500
loop 511-602 knew 1 had 1 lag 0
loop 602-603 knew 1 had 2 lag 1
loop 603-1000 knew 2 had 2 lag 0
`},
		"a list tells of all that is older": {func(r *recorder) {
			r.request(0, 5, "loop", "list", "", after("50"))
			w := r.request(6, 7, "loop", "watch", "", open)
			r.event(w, 100, "MODIFIED", "a", "60")
			r.request(100, 101, "kubectl", "get", "a", after("40"))
		}, `
5-100 v40 late
100-101 v60 late
loop 5-6 knew 0 had 0 lag 0 off
loop 6-100 knew 0 had 0 lag 0
loop 100-101 knew 1 had 1 lag 0
`},
		"a bookmark tells of all that is older; without a watch, nothing is known": {func(r *recorder) {
			w := r.request(0, 1, "loop", "watch", "", open)
			r.event(w, 20, "BOOKMARK", "", "70")
			r.request(10, 11, "other", "create", "a", after("60"))
			r.request(30, 31, "other", "get", "a", after("60"))
		}, `
11-31 v60 created by other
loop 20-31 knew 0 had 0 lag 0
`},
		"a deletion with an event": {func(r *recorder) {
			w := r.request(0, 1, "loop", "watch", "", open)
			r.event(w, 1, "ADDED", "a", "10")
			r.request(10, 20, "loop", "delete", "a", nil)
			r.event(w, 15, "DELETED", "a", "20")
			r.request(30, 31, "loop", "create", "a", after("30"))
			r.event(w, 31, "ADDED", "a", "30")
		}, `
1-15 v10 late
15-31 v20 gone by loop
31-31 v30 created by loop
loop 1-15 knew 0 had 0 lag 0
loop 15-31 knew 1 had 1 lag 0
`},
		"a deletion that nobody watched": {func(r *recorder) {
			r.request(0, 1, "loop", "get", "a", after("10"))
			r.request(10, 20, "loop", "delete", "a", nil)
			r.request(30, 31, "loop", "get", "a", func(q *history.Request) { q.Status = 404 })
		}, `
1-20 v10 late
20-31 v gone by loop
`},
		"a deletion that waits for a finalizer": {func(r *recorder) {
			w := r.request(0, 1, "loop", "watch", "", open)
			r.event(w, 1, "ADDED", "a", "10")
			r.request(10, 11, "kubectl", "delete", "a", after("20"))
			r.event(w, 11, "MODIFIED", "a", "20")
			r.request(12, 14, "loop", "update", "a", func(q *history.Request) { q.RVBefore, q.RVAfter = "20", "20" })
			r.event(w, 13, "DELETED", "a", "30")
			r.request(20, 20, "loop", "get", "b", nil)
		}, `
1-11 v10 late
11-13 v20 deleting by kubectl
13-20 v30 gone by loop
loop 1-11 knew 0 had 0 lag 0
loop 11-13 knew 1 had 1 lag 0
`},
		"a watch that breaks, and another one later": {func(r *recorder) {
			w := r.request(0, 100, "loop", "watch", "", nil)
			r.event(w, 1, "ADDED", "a", "10")
			r.request(110, 120, "kubectl", "patch", "a", after("20"))
			w = r.request(200, 201, "loop", "watch", "", open)
			r.event(w, 240, "MODIFIED", "a", "20")
			r.request(300, 300, "loop", "get", "b", nil)
		}, `
1-120 v10 late
120-300 v20 by kubectl
loop 1-100 knew 0 had 0 lag 0
loop 100-120 knew 0 had 0 lag 0 off
loop 120-200 knew 0 had 1 lag 0 off
loop 200-240 knew 0 had 1 lag 40
loop 240-300 knew 1 had 1 lag 0
`},
		"a watch with a selector": {func(r *recorder) {
			selective := func(q *history.Request) { q.URI += "?labelSelector=app%3Da"; q.Open = true }
			w := r.request(0, 1, "loop", "watch", "", selective)
			r.event(w, 5, "BOOKMARK", "", "90")
			r.request(6, 7, "loop", "get", "a", after("10")) // not known to be selected
			r.request(7, 8, "loop", "get", "a", after("10"))
		}, `
5-8 v10 late
`},
		"versions that are no numbers are left out": {func(r *recorder) {
			r.request(6, 7, "loop", "get", "a", after("ten"))
		}, "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorder
			test.record(&r)
			require.Equal(t, test.want, "\n"+lane(r.model(), "a"))
		})
	}
}

// why says the cause of the last request.
func why(m *view.Model) string {
	last := m.Marks[len(m.Marks)-1]
	if last.Cause == nil {
		return "none"
	}
	var events []string
	for _, e := range last.Cause.Events {
		events = append(events, fmt.Sprintf("%s %s at %g", m.Events[e].Type, m.Lanes[m.Events[e].Lane].Name, m.Events[e].Told))
	}
	return fmt.Sprintf("%s %d %s", last.Cause.Rule, last.Cause.Mark, strings.Join(events, ", "))
}

func TestCauses(t *testing.T) {
	refused := func(q *history.Request) { q.Status = 500 }
	for name, test := range map[string]struct {
		record func(r *recorder, watch int64)
		want   string
	}{
		"the last event about the object": {func(r *recorder, w int64) {
			r.event(w, 2, "ADDED", "a", "10")
			r.event(w, 3, "MODIFIED", "a", "11")
			r.event(w, 4, "MODIFIED", "b", "12")
			r.event(w, 9, "MODIFIED", "a", "13") // too late
			r.request(5, 6, "loop", "patch", "a", after("20"))
		}, "object -1 MODIFIED a at 3"},
		"the event of its own write": {func(r *recorder, w int64) {
			r.event(w, 2, "ADDED", "a", "10")
			r.request(5, 8, "loop", "patch", "a", after("20"))
			r.event(w, 7, "MODIFIED", "a", "20") // before the answer
			r.request(9, 10, "loop", "patch", "a", after("30"))
		}, "object -1 MODIFIED a at 7"},
		"a retry": {func(r *recorder, w int64) {
			r.event(w, 2, "ADDED", "a", "10")
			r.request(5, 6, "loop", "patch", "a", refused)
			r.request(9, 10, "loop", "patch", "a", after("30"))
		}, "retry 1 "},
		"no retry, because an event came": {func(r *recorder, w int64) {
			r.event(w, 2, "ADDED", "a", "10")
			r.request(5, 6, "loop", "patch", "a", refused)
			r.event(w, 7, "MODIFIED", "a", "20")
			r.request(9, 10, "loop", "patch", "a", after("30"))
		}, "object -1 MODIFIED a at 7"},
		"no retry, because a read succeeded in between": {func(r *recorder, w int64) {
			r.request(5, 6, "loop", "patch", "a", refused)
			r.request(7, 8, "loop", "get", "a", after("20"))
			r.request(9, 10, "loop", "patch", "a", after("30"))
		}, "nothing -1 "},
		"the first list": {func(r *recorder, _ int64) {
			r.request(2, 3, "loop", "list", "", after("20"))
			r.request(9, 10, "loop", "patch", "a", after("30"))
		}, "list 1 "},
		"others, the newest of each first": {func(r *recorder, w int64) {
			r.request(1, 2, "loop", "patch", "b", after("9"))
			r.event(w, 3, "MODIFIED", "b", "10")
			r.event(w, 4, "MODIFIED", "c", "11")
			r.event(w, 5, "MODIFIED", "b", "12")
			r.request(9, 10, "loop", "patch", "a", after("30"))
		}, "anything -1 MODIFIED b at 5, MODIFIED c at 4"},
		"nothing, as of a timer; what others were told does not count": {func(r *recorder, _ int64) {
			other := r.request(1, 2, "other", "watch", "", open)
			r.event(other, 3, "MODIFIED", "a", "10")
			r.request(9, 10, "loop", "patch", "a", after("30"))
		}, "nothing -1 "},
		"a read has none": {func(r *recorder, _ int64) { r.request(9, 10, "loop", "get", "a", nil) }, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorder
			test.record(&r, r.request(0, 1, "loop", "watch", "", open))
			require.Equal(t, test.want, why(r.model()))
		})
	}
}

// stale says what the last request's program did not know.
func stale(m *view.Model) string {
	s := m.Marks[len(m.Marks)-1].Stale
	if s == nil {
		return "not stale"
	}
	var others []string
	for _, l := range s.Others {
		others = append(others, m.Lanes[l].Name)
	}
	return fmt.Sprintf("knew %s had %s for %g own %t others %v", s.Knew, s.Had, s.For, s.Own, others)
}

func TestStaleWrites(t *testing.T) {
	begin := func(r *recorder) int64 {
		w := r.request(0, 1, "loop", "watch", "", open)
		r.event(w, 1, "ADDED", "a", "10")
		r.event(w, 1, "ADDED", "b", "11")
		return w
	}
	for name, test := range map[string]struct {
		record func(r *recorder, watch int64)
		want   string
	}{
		"it acts on an old version": {func(r *recorder, w int64) {
			r.late(w, 100, 900, "MODIFIED", "a", "20")
			r.request(700, 701, "loop", "patch", "a", after("30"))
		}, "knew 10 had 20 for 600 own false others []"},
		"it has been told": {func(r *recorder, w int64) {
			r.late(w, 100, 600, "MODIFIED", "a", "20")
			r.request(700, 701, "loop", "patch", "a", after("30"))
		}, "not stale"},
		"no longer than every event takes": {func(r *recorder, w int64) {
			r.late(w, 100, 200, "MODIFIED", "a", "20")
			r.request(110, 111, "loop", "patch", "a", after("30"))
		}, "not stale"},
		"its own write has not come back": {func(r *recorder, w int64) {
			r.request(100, 101, "loop", "patch", "a", after("20"))
			r.late(w, 101, 900, "MODIFIED", "a", "20")
			r.request(200, 201, "loop", "patch", "a", after("30"))
		}, "knew 10 had 20 for 99 own true others []"},
		"the object is gone": {func(r *recorder, w int64) {
			r.late(w, 100, 900, "DELETED", "a", "20")
			r.request(700, 701, "loop", "patch", "a", func(q *history.Request) { q.Status = 404 })
		}, "knew 10 had  for 600 own false others []"},
		"it does not know about another object": {func(r *recorder, w int64) {
			r.late(w, 100, 900, "MODIFIED", "b", "20")
			r.request(700, 701, "loop", "patch", "a", after("30"))
		}, "knew  had  for 600 own false others [b]"},
		"it wrote the other object itself": {func(r *recorder, w int64) {
			r.request(100, 101, "loop", "patch", "b", after("20"))
			r.late(w, 101, 900, "MODIFIED", "b", "20")
			r.request(700, 701, "loop", "patch", "a", after("30"))
		}, "not stale"},
		"a program without a watch is not said to be behind": {func(r *recorder, w int64) {
			r.late(w, 100, 900, "MODIFIED", "a", "20")
			r.request(700, 701, "kubectl", "patch", "a", after("30"))
		}, "not stale"},
		"a read is no act": {func(r *recorder, w int64) {
			r.late(w, 100, 900, "MODIFIED", "a", "20")
			r.request(700, 701, "loop", "get", "a", after("20"))
		}, "not stale"},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorder
			test.record(&r, begin(&r))
			require.Equal(t, test.want, stale(r.model()))
		})
	}
}

func TestOutcomes(t *testing.T) {
	for want, edit := range map[view.Outcome]func(*history.Request){
		view.Wrote:    after("20"),
		view.NoOp:     func(q *history.Request) { q.NoOp, q.RVAfter = true, "10" },
		view.Conflict: func(q *history.Request) { q.Status = 409 },
		view.NotFound: func(q *history.Request) { q.Status = 404 },
		view.Refused:  func(q *history.Request) { q.Status = 403 },
		view.Lost:     func(q *history.Request) { q.Status, q.Error = 0, "reply lost" },
		view.GaveUp:   func(q *history.Request) { q.Status, q.GaveUp, q.Error = 0, true, "context canceled" },
		view.Read:     func(q *history.Request) { q.Verb = "get" },
	} {
		var r recorder
		r.request(0, 1, "loop", "patch", "a", edit)
		require.Equal(t, want, r.model().Marks[0].Outcome)
	}
}

func TestFamilies(t *testing.T) {
	var r recorder
	for _, name := range []string{"web-7d4b9c6f5-x2x4z", "web-7d4b9c6f5-bbbbb", "web-5f6c8d9b7-zzzzz", "web-5f6c8d9b7-zzzzx", "web-5f6c8d9b7-zzzzv", "web-5f6c8d9b7-zzzzw", "job-x2x4z", "job-bcdfg", "node-a", "web"} {
		r.request(0, 1, "loop", "get", name, nil)
	}
	for i := range 12 {
		r.request(0, 1, "loop", "get", fmt.Sprint("node-", i), nil)
	}
	got := map[string]int{}
	var names []string
	for _, l := range r.model().Lanes {
		got[l.Family]++
		names = append(names, l.Name)
	}
	require.Equal(t, map[string]int{"web-*": 6, "node-*": 12, "": 4}, got)
	require.Less(t, strings.Index(strings.Join(names, " "), "node-2 "), strings.Index(strings.Join(names, " "), "node-10"), "%v", names)
}

// Whatever a recording has, there is a model of it, and its indexes lead somewhere.
func TestAnyRecording(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r recorder
		names, programs := rapid.SampledFrom([]string{"", "a", "b", "c"}), rapid.SampledFrom([]string{"loop", "other"})
		versions := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "version")) })
		for range rapid.IntRange(0, 25).Draw(t, "records") {
			from := rapid.Float64Range(0, 100).Draw(t, "from")
			if r.id > 0 && rapid.Bool().Draw(t, "isEvent") {
				kind := rapid.SampledFrom([]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"}).Draw(t, "type")
				r.late(rapid.Int64Range(1, r.id+1).Draw(t, "watch"), from, from+rapid.Float64Range(0, 50).Draw(t, "late"), kind, names.Draw(t, "name"), versions.Draw(t, "rv"))
				continue
			}
			verb := rapid.SampledFrom([]string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}).Draw(t, "verb")
			r.request(from, from+rapid.Float64Range(0, 50).Draw(t, "took"), programs.Draw(t, "program"), verb, names.Draw(t, "name"), func(q *history.Request) {
				q.RVAfter, q.RVBefore = versions.Draw(t, "after"), versions.Draw(t, "before")
				q.Status = rapid.SampledFrom([]int{0, 200, 201, 404, 409, 500}).Draw(t, "status")
				q.Open, q.NoOp, q.GaveUp = rapid.Bool().Draw(t, "open"), rapid.Bool().Draw(t, "noop"), rapid.Bool().Draw(t, "gaveUp")
			})
		}
		m := r.model()
		for _, l := range m.Lanes {
			for i, v := range l.Versions {
				require.LessOrEqual(t, v.From, v.To)
				require.Less(t, v.Mark, len(m.Marks))
				if i > 0 {
					require.Equal(t, l.Versions[i-1].To, v.From, "versions have no gaps")
				}
			}
			for _, told := range l.Told {
				for i, s := range told.Spans {
					require.Less(t, s.From, s.To)
					require.LessOrEqual(t, s.Knew, s.Had, "nobody knows what nobody has seen")
					require.Equal(t, s.Knew != s.Had && !s.Off, s.Lag > 0)
					if i > 0 {
						require.Equal(t, told.Spans[i-1].To, s.From, "spans have no gaps")
					}
				}
			}
		}
		for _, e := range m.Events {
			require.Less(t, e.Version, max(1, len(m.Lanes[e.Lane].Versions)))
		}
		for _, mark := range m.Marks {
			if mark.Cause != nil {
				require.Less(t, mark.Cause.Mark, len(m.Marks))
				for _, e := range mark.Cause.Events {
					require.LessOrEqual(t, m.Events[e].Told, mark.Start, "no cause is later than its effect")
				}
			}
		}
		require.NoError(t, view.Page(io.Discard, m))
	})
}

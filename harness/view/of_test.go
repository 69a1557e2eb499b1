package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/internal/recorded"
)

func model(r *recorded.Recorder) *view.Model { return view.Of("test", history.Of(r.Records...)) }

// lane prints a lane, a line for each version and for what each program knew when.
func lane(m *view.Model, name string) string {
	var out strings.Builder
	for _, l := range m.Lanes {
		if l.Name != name {
			continue
		}
		for _, v := range l.Versions {
			fmt.Fprintf(&out, "%g-%g v%s", v.From, v.To, v.RV)
			for _, is := range []struct {
				word string
				it   bool
			}{{" late", v.Late}, {" created", v.Created}, {" deleting", v.Deleting}, {" gone", v.Gone}} {
				if is.it {
					fmt.Fprint(&out, is.word)
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
		record func(r *recorded.Recorder)
		want   string
	}{
		"a cache that is behind, and a write of one's own": {func(r *recorded.Recorder) {
			w := r.Request(0, 1, "loop", "watch", "", recorded.Open)
			r.Event(w, 2, "ADDED", "a", "10")
			r.Request(10, 12, "kubectl", "patch", "a", recorded.After("20"))
			r.Late(w, 11, 511, "MODIFIED", "a", "20")
			r.Request(600, 602, "loop", "patch", "a", recorded.After("30"))
			r.Event(w, 603, "MODIFIED", "a", "30")
			r.Request(1000, 1000, "kubectl", "get", "b", nil)
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
		"an object that is not found is gone, whoever deleted it": {func(r *recorded.Recorder) {
			r.Request(0, 5, "kubectl", "get", "a", recorded.After("10"))
			r.Request(50, 51, "kubectl", "get", "a", func(q *history.Request) { q.Status = 404 })
			r.Request(60, 61, "kubectl", "get", "a", func(q *history.Request) { q.Status = 404 })
			r.Request(80, 81, "loop", "create", "a", recorded.After("20"))
		}, `
5-51 v10 late
51-81 v late gone
81-81 v20 created by loop
`},
		"it was not found, and there before and after": {func(r *recorded.Recorder) {
			r.Request(0, 5, "kubectl", "get", "a", recorded.After("10"))
			r.Request(50, 51, "kubectl", "get", "a", func(q *history.Request) { q.Status = 404 })
			r.Request(60, 61, "kubectl", "get", "a", recorded.After("11"))
		}, `
5-61 v10 late
61-61 v11 late
`},
		"a client that gave up had written": {func(r *recorded.Recorder) {
			r.Request(0, 5, "kubectl", "get", "a", recorded.After("10"))
			r.Request(50, 51, "loop", "update", "a", func(q *history.Request) { q.GaveUp, q.RVBefore, q.RVAfter = true, "10", "20" })
		}, `
5-51 v10 late
51-51 v20 by loop
`},
		"a list tells of all that is older": {func(r *recorded.Recorder) {
			r.Request(0, 5, "loop", "list", "", recorded.After("50"))
			w := r.Request(6, 7, "loop", "watch", "", recorded.Open)
			r.Event(w, 100, "MODIFIED", "a", "60")
			r.Request(100, 101, "kubectl", "get", "a", recorded.After("40"))
		}, `
5-100 v40 late
100-101 v60 late
loop 5-6 knew 0 had 0 lag 0 off
loop 6-100 knew 0 had 0 lag 0
loop 100-101 knew 1 had 1 lag 0
`},
		"a bookmark tells of all that is older; without a watch, nothing is known": {func(r *recorded.Recorder) {
			w := r.Request(0, 1, "loop", "watch", "", recorded.Open)
			r.Event(w, 20, "BOOKMARK", "", "70")
			r.Request(10, 11, "other", "create", "a", recorded.After("60"))
			r.Request(30, 31, "other", "get", "a", recorded.After("60"))
		}, `
11-31 v60 created by other
loop 20-31 knew 0 had 0 lag 0
`},
		"a deletion with an event": {func(r *recorded.Recorder) {
			w := r.Request(0, 1, "loop", "watch", "", recorded.Open)
			r.Event(w, 1, "ADDED", "a", "10")
			r.Request(10, 20, "loop", "delete", "a", nil)
			r.Event(w, 15, "DELETED", "a", "20")
			r.Request(30, 31, "loop", "create", "a", recorded.After("30"))
			r.Event(w, 31, "ADDED", "a", "30")
		}, `
1-15 v10 late
15-31 v20 gone by loop
31-31 v30 created by loop
loop 1-15 knew 0 had 0 lag 0
loop 15-31 knew 1 had 1 lag 0
`},
		"a deletion that nobody watched": {func(r *recorded.Recorder) {
			r.Request(0, 1, "loop", "get", "a", recorded.After("10"))
			r.Request(10, 20, "loop", "delete", "a", nil)
			r.Request(30, 31, "loop", "get", "a", func(q *history.Request) { q.Status = 404 })
		}, `
1-20 v10 late
20-31 v gone by loop
`},
		"a deletion that waits for a finalizer": {func(r *recorded.Recorder) {
			w := r.Request(0, 1, "loop", "watch", "", recorded.Open)
			r.Event(w, 1, "ADDED", "a", "10")
			r.Request(10, 11, "kubectl", "delete", "a", recorded.After("20"))
			r.Event(w, 11, "MODIFIED", "a", "20")
			r.Request(12, 14, "loop", "update", "a", func(q *history.Request) { q.RVBefore, q.RVAfter = "20", "20" })
			r.Event(w, 13, "DELETED", "a", "30")
			r.Request(20, 20, "loop", "get", "b", nil)
		}, `
1-11 v10 late
11-13 v20 deleting by kubectl
13-20 v30 gone by loop
loop 1-11 knew 0 had 0 lag 0
loop 11-13 knew 1 had 1 lag 0
`},
		"a watch that breaks, and another one later": {func(r *recorded.Recorder) {
			w := r.Request(0, 100, "loop", "watch", "", nil)
			r.Event(w, 1, "ADDED", "a", "10")
			r.Request(110, 120, "kubectl", "patch", "a", recorded.After("20"))
			w = r.Request(200, 201, "loop", "watch", "", recorded.Open)
			r.Event(w, 240, "MODIFIED", "a", "20")
			r.Request(300, 300, "loop", "get", "b", nil)
		}, `
1-120 v10 late
120-300 v20 by kubectl
loop 1-100 knew 0 had 0 lag 0
loop 100-120 knew 0 had 0 lag 0 off
loop 120-200 knew 0 had 1 lag 0 off
loop 200-240 knew 0 had 1 lag 40
loop 240-300 knew 1 had 1 lag 0
`},
		"a watch with a selector": {func(r *recorded.Recorder) {
			selective := func(q *history.Request) { q.URI += "?labelSelector=app%3Da"; q.Open = true }
			w := r.Request(0, 1, "loop", "watch", "", selective)
			r.Event(w, 5, "BOOKMARK", "", "90")
			r.Request(6, 7, "loop", "get", "a", recorded.After("10")) // not known to be selected
			r.Request(7, 8, "loop", "get", "a", recorded.After("10"))
		}, `
5-8 v10 late
`},
		"versions that are no numbers are left out": {func(r *recorded.Recorder) {
			r.Request(6, 7, "loop", "get", "a", recorded.After("ten"))
		}, "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorded.Recorder
			test.record(&r)
			require.Equal(t, test.want, "\n"+lane(model(&r), "a"))
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
		record func(r *recorded.Recorder, watch int64)
		want   string
	}{
		"the last event about the object": {func(r *recorded.Recorder, w int64) {
			r.Event(w, 2, "ADDED", "a", "10")
			r.Event(w, 3, "MODIFIED", "a", "11")
			r.Event(w, 4, "MODIFIED", "b", "12")
			r.Event(w, 9, "MODIFIED", "a", "13") // too late
			r.Request(5, 6, "loop", "patch", "a", recorded.After("20"))
		}, "object -1 MODIFIED a at 3"},
		"the event of its own write": {func(r *recorded.Recorder, w int64) {
			r.Event(w, 2, "ADDED", "a", "10")
			r.Request(5, 8, "loop", "patch", "a", recorded.After("20"))
			r.Event(w, 7, "MODIFIED", "a", "20") // before the answer
			r.Request(9, 10, "loop", "patch", "a", recorded.After("30"))
		}, "object -1 MODIFIED a at 7"},
		"a retry": {func(r *recorded.Recorder, w int64) {
			r.Event(w, 2, "ADDED", "a", "10")
			r.Request(5, 6, "loop", "patch", "a", refused)
			r.Request(9, 10, "loop", "patch", "a", recorded.After("30"))
		}, "retry 1 "},
		"no retry, because an event came": {func(r *recorded.Recorder, w int64) {
			r.Event(w, 2, "ADDED", "a", "10")
			r.Request(5, 6, "loop", "patch", "a", refused)
			r.Event(w, 7, "MODIFIED", "a", "20")
			r.Request(9, 10, "loop", "patch", "a", recorded.After("30"))
		}, "object -1 MODIFIED a at 7"},
		"no retry, because a read succeeded in between": {func(r *recorded.Recorder, w int64) {
			r.Request(5, 6, "loop", "patch", "a", refused)
			r.Request(7, 8, "loop", "get", "a", recorded.After("20"))
			r.Request(9, 10, "loop", "patch", "a", recorded.After("30"))
		}, "nothing -1 "},
		"the first list": {func(r *recorded.Recorder, _ int64) {
			r.Request(2, 3, "loop", "list", "", recorded.After("20"))
			r.Request(9, 10, "loop", "patch", "a", recorded.After("30"))
		}, "list 1 "},
		"others, the newest of each first": {func(r *recorded.Recorder, w int64) {
			r.Request(1, 2, "loop", "patch", "b", recorded.After("9"))
			r.Event(w, 3, "MODIFIED", "b", "10")
			r.Event(w, 4, "MODIFIED", "c", "11")
			r.Event(w, 5, "MODIFIED", "b", "12")
			r.Request(9, 10, "loop", "patch", "a", recorded.After("30"))
		}, "anything -1 MODIFIED b at 5, MODIFIED c at 4"},
		"nothing, as of a timer; what others were told does not count": {func(r *recorded.Recorder, _ int64) {
			other := r.Request(1, 2, "other", "watch", "", recorded.Open)
			r.Event(other, 3, "MODIFIED", "a", "10")
			r.Request(9, 10, "loop", "patch", "a", recorded.After("30"))
		}, "nothing -1 "},
		"a read has none": {func(r *recorded.Recorder, _ int64) { r.Request(9, 10, "loop", "get", "a", nil) }, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorded.Recorder
			test.record(&r, r.Request(0, 1, "loop", "watch", "", recorded.Open))
			require.Equal(t, test.want, why(model(&r)))
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
	return fmt.Sprintf("knew %s had %s for %g own %t others %v: %s", s.Knew, s.Had, s.For, s.Own, others, s.Text)
}

func TestStaleWrites(t *testing.T) {
	begin := func(r *recorded.Recorder) int64 {
		w := r.Request(0, 1, "loop", "watch", "", recorded.Open)
		r.Event(w, 1, "ADDED", "a", "10")
		r.Event(w, 1, "ADDED", "b", "11")
		return w
	}
	for name, test := range map[string]struct {
		record func(r *recorded.Recorder, watch int64)
		want   string
	}{
		"it acts on an old version": {func(r *recorded.Recorder, w int64) {
			r.Late(w, 100, 900, "MODIFIED", "a", "20")
			r.Request(700, 701, "loop", "patch", "a", recorded.After("30"))
		}, "knew 10 had 20 for 600 own false others []: It had been told of version 10; the API server had version 20, and it had been behind for 600ms."},
		"it has been told": {func(r *recorded.Recorder, w int64) {
			r.Late(w, 100, 600, "MODIFIED", "a", "20")
			r.Request(700, 701, "loop", "patch", "a", recorded.After("30"))
		}, "not stale"},
		"no longer than every event takes": {func(r *recorded.Recorder, w int64) {
			r.Late(w, 100, 200, "MODIFIED", "a", "20")
			r.Request(110, 111, "loop", "patch", "a", recorded.After("30"))
		}, "not stale"},
		"its own write has not come back": {func(r *recorded.Recorder, w int64) {
			r.Request(100, 101, "loop", "patch", "a", recorded.After("20"))
			r.Late(w, 101, 900, "MODIFIED", "a", "20")
			r.Request(200, 201, "loop", "patch", "a", recorded.After("30"))
		}, "knew 10 had 20 for 99 own true others []: It had been told of version 10; the API server had version 20, and it had been behind for 99ms. " +
			"All that it had not been told of were its own writes."},
		"the object is gone": {func(r *recorded.Recorder, w int64) {
			r.Late(w, 100, 900, "DELETED", "a", "20")
			r.Request(700, 701, "loop", "patch", "a", func(q *history.Request) { q.Status = 404 })
		}, "knew 10 had  for 600 own false others []: It had been told of version 10; the object was gone, and it had been behind for 600ms."},
		"it does not know about another object": {func(r *recorded.Recorder, w int64) {
			r.Late(w, 100, 900, "MODIFIED", "b", "20")
			r.Request(700, 701, "loop", "patch", "a", recorded.After("30"))
		}, "knew  had  for 600 own false others [b]: It had not been told everything about b, for 600ms."},
		"it wrote the other object itself": {func(r *recorded.Recorder, w int64) {
			r.Request(100, 101, "loop", "patch", "b", recorded.After("20"))
			r.Late(w, 101, 900, "MODIFIED", "b", "20")
			r.Request(700, 701, "loop", "patch", "a", recorded.After("30"))
		}, "not stale"},
		"a program without a watch is not said to be behind": {func(r *recorded.Recorder, w int64) {
			r.Late(w, 100, 900, "MODIFIED", "a", "20")
			r.Request(700, 701, "kubectl", "patch", "a", recorded.After("30"))
		}, "not stale"},
		"another process of the same name writes": {func(r *recorded.Recorder, w int64) {
			r.Records[0].Request.Connection = 1
			r.Late(w, 100, 900, "MODIFIED", "a", "20")
			r.Request(700, 701, "loop", "patch", "a", recorded.On(2, recorded.After("30")))
		}, "not stale"},
		"the same process writes": {func(r *recorded.Recorder, w int64) {
			r.Records[0].Request.Connection = 1
			r.Late(w, 100, 900, "MODIFIED", "a", "20")
			r.Request(400, 401, "loop", "patch", "b", recorded.On(2, recorded.After("21")))
			r.Request(700, 701, "loop", "patch", "a", recorded.On(1, recorded.After("30")))
		}, "knew 10 had 20 for 600 own false others [b]: It had been told of version 10; the API server had version 20, and it had been behind for 600ms. " +
			"Nor had it been told everything about b."},
		"a process that had lost its connection writes": {func(r *recorded.Recorder, _ int64) {
			r.Records[0].Request.Connection = 1
			r.Records[0].Request.Open, r.Records[0].Request.Duration = false, 300*time.Millisecond
			w := r.Request(400, 401, "loop", "watch", "", recorded.On(2, recorded.Open))
			r.Late(w, 100, 900, "MODIFIED", "a", "20")
			r.Request(700, 701, "loop", "patch", "a", recorded.On(2, recorded.After("30")))
		}, "knew 10 had 20 for 600 own false others []: It had been told of version 10; the API server had version 20, and it had been behind for 600ms."},
		"a read is no act": {func(r *recorded.Recorder, w int64) {
			r.Late(w, 100, 900, "MODIFIED", "a", "20")
			r.Request(700, 701, "loop", "get", "a", recorded.After("20"))
		}, "not stale"},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorded.Recorder
			test.record(&r, begin(&r))
			require.Equal(t, test.want, stale(model(&r)))
		})
	}
}

func TestOutcomes(t *testing.T) {
	for want, edit := range map[view.Outcome]func(*history.Request){
		view.Wrote:    recorded.After("20"),
		view.NoOp:     func(q *history.Request) { q.NoOp, q.RVAfter = true, "10" },
		view.Conflict: func(q *history.Request) { q.Status = 409 },
		view.NotFound: func(q *history.Request) { q.Status = 404 },
		view.Refused:  func(q *history.Request) { q.Status = 403 },
		view.Lost:     func(q *history.Request) { q.Status, q.Error = 0, "reply lost" },
		view.GaveUp:   func(q *history.Request) { q.Status, q.GaveUp, q.Error = 0, true, "context canceled" },
		view.Read:     func(q *history.Request) { q.Verb = "get" },
	} {
		var r recorded.Recorder
		r.Request(0, 1, "loop", "patch", "a", edit)
		require.Equal(t, want, model(&r).Marks[0].Outcome)
	}
}

func TestFamilies(t *testing.T) {
	var r recorded.Recorder
	for _, name := range []string{"web-7d4b9c6f5-x2x4z", "web-7d4b9c6f5-bbbbb", "web-5f6c8d9b7-zzzzz", "web-5f6c8d9b7-zzzzx", "web-5f6c8d9b7-zzzzv", "web-5f6c8d9b7-zzzzw", "job-x2x4z", "job-bcdfg", "node-a", "web"} {
		r.Request(0, 1, "loop", "get", name, nil)
	}
	for i := range 12 {
		r.Request(0, 1, "loop", "get", fmt.Sprint("node-", i), nil)
	}
	got := map[string]int{}
	var names []string
	for _, l := range model(&r).Lanes {
		got[l.Family]++
		names = append(names, l.Name)
	}
	require.Equal(t, map[string]int{"web-*": 6, "node-*": 12, "": 4}, got)
	require.Less(t, strings.Index(strings.Join(names, " "), "node-2 "), strings.Index(strings.Join(names, " "), "node-10"), "%v", names)
}

// Whatever a recording has, there is a model of it, and its indexes lead somewhere.
func TestAnyRecording(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r recorded.Recorder
		names, programs := rapid.SampledFrom([]string{"", "a", "b", "c"}), rapid.SampledFrom([]string{"loop", "other"})
		versions := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "version")) })
		for range rapid.IntRange(0, 25).Draw(t, "records") {
			from := rapid.Float64Range(0, 100).Draw(t, "from")
			if r.Last() > 0 && rapid.Bool().Draw(t, "isEvent") {
				kind := rapid.SampledFrom([]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"}).Draw(t, "type")
				r.Late(rapid.Int64Range(1, r.Last()+1).Draw(t, "watch"), from, from+rapid.Float64Range(0, 50).Draw(t, "late"), kind, names.Draw(t, "name"), versions.Draw(t, "rv"))
				continue
			}
			verb := rapid.SampledFrom([]string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}).Draw(t, "verb")
			r.Request(from, from+rapid.Float64Range(0, 50).Draw(t, "took"), programs.Draw(t, "program"), verb, names.Draw(t, "name"), func(q *history.Request) {
				q.RVAfter, q.RVBefore = versions.Draw(t, "after"), versions.Draw(t, "before")
				q.Status = rapid.SampledFrom([]int{0, 200, 201, 404, 409, 500}).Draw(t, "status")
				q.Open, q.NoOp, q.GaveUp = rapid.Bool().Draw(t, "open"), rapid.Bool().Draw(t, "noop"), rapid.Bool().Draw(t, "gaveUp")
			})
		}
		m := model(&r)
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
	})
}

// A watch that begins with all objects says by its silence that one is gone.
func TestMissingFromInitialEvents(t *testing.T) {
	r := &recorded.Recorder{}
	bookmark := func(watch int64, ms float64, rv string) {
		r.Event(watch, ms, "BOOKMARK", "", rv)
	}
	all := func(selector string) func(*history.Request) {
		return func(q *history.Request) { q.URI, q.Open = "/api/v1/nodes?sendInitialEvents=true"+selector, true }
	}
	r.Request(0, 1, "kubectl", "get", "a", recorded.After("10"))
	r.Request(0, 1, "kubectl", "get", "b", recorded.After("11"))
	some := r.Request(2, 3, "other", "watch", "", all("&labelSelector=app"))
	bookmark(some, 4, "15")
	w := r.Request(10, 11, "loop", "watch", "", all(""))
	r.Event(w, 12, "ADDED", "b", "11")
	bookmark(w, 13, "20")
	bookmark(w, 50, "40") // not the end of the initial events
	r.Request(60, 61, "kubectl", "create", "a", recorded.After("50"))
	m := model(r)
	require.Equal(t, "\n"+lane(m, "a"), `
1-13 v10 late
13-61 v20 late gone
61-61 v50 created by kubectl
loop 13-61 knew 1 had 1 lag 0
`)
	require.NotContains(t, lane(m, "b"), "gone")
}

package view_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/internal/recorded"
)

func step(r *recorded.Recorder, ms float64, name string) {
	r.Records = append(r.Records, history.Record{Step: &history.Step{Time: at(ms), Name: name}})
}

func TestCompare(t *testing.T) {
	failed, good := &recorded.Recorder{}, &recorded.Recorder{}
	step(good, 0, "start")
	good.Request(10, 12, "loop", "patch", "a", recorded.After("5"))
	good.Request(20, 22, "loop", "patch", "b", recorded.After("6"))
	good.Request(30, 32, "loop", "create", "content-11111111-2222-3333-4444-555555555555", recorded.After("7"))
	step(good, 100, "scale")
	good.Request(110, 112, "loop", "delete", "web-7d4b9c-x2v4z", nil)
	good.Request(120, 122, "loop", "get", "b", nil) // reads do not count
	step(good, 200, "end")
	good.Request(210, 212, "loop", "delete", "a", nil) // to which the other did not come

	step(failed, 0, "start")
	failed.Request(10, 12, "loop", "patch", "a", func(q *history.Request) { q.Status = 500 })
	failed.Request(50, 52, "loop", "patch", "a", recorded.After("5"))
	failed.Request(120, 122, "loop", "patch", "b", recorded.After("6"))
	failed.Request(130, 132, "loop", "create", "content-99999999-2222-3333-4444-555555555555", recorded.After("7"))
	step(failed, 150, "scale")
	failed.Request(160, 162, "loop", "delete", "web-7d4b9c-bbbbb", nil)
	failed.Request(170, 172, "loop", "delete", "web-7d4b9c-ccccc", nil)
	step(failed, 180, "late")
	failed.Request(190, 192, "loop", "patch", "z", recorded.After("9"))

	a, b := model(failed), model(good)
	view.Compare(a, b)
	require.Equal(t, []view.Step{{0, "start"}, {150, "scale"}, {180, "late"}}, a.Steps)
	require.Equal(t, []view.Step{{0, "start"}, {150, "scale"}, {250, "end"}}, b.Steps)
	require.Equal(t, []string{"10 patch a refused", "170 delete web-7d4b9c-ccccc wrote"}, differing(a))
	require.Empty(t, differing(b))
	require.Equal(t, []float64{262, 262}, []float64{a.End, b.End})
	require.Equal(t, 160.0, b.Marks[3].Start)
}

func differing(m *view.Model) (all []string) {
	for _, mark := range m.Marks {
		if mark.Differs {
			all = append(all, fmt.Sprintf("%g %s %s %s", mark.Start, mark.Verb, m.Lanes[mark.Lane].Name, mark.Outcome))
		}
	}
	return all
}

// What one of the runs lacks is marked in the other, also without steps.
func TestCompareWithoutSteps(t *testing.T) {
	failed, good := &recorded.Recorder{}, &recorded.Recorder{}
	good.Request(10, 12, "loop", "create", "a", nil)
	failed.Request(10, 12, "loop", "get", "a", nil)
	a, b := model(failed), model(good)
	view.Compare(a, b)
	require.Empty(t, differing(a))
	require.Equal(t, []string{"0 create a wrote"}, differing(b))
	view.Compare(model(&recorded.Recorder{}), b)
}

// A run that is compared with itself does not change, and two that are compared keep the order of everything.
func TestCompareKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run := func(label string) *view.Model {
			r, now := &recorded.Recorder{}, 0.0
			for i := range rapid.IntRange(0, 4).Draw(t, label+" steps") {
				step(r, now, fmt.Sprint(i))
				for range rapid.IntRange(0, 3).Draw(t, label+" requests") {
					now += float64(rapid.IntRange(0, 50).Draw(t, label+" pause"))
					r.Request(now, now+float64(rapid.IntRange(0, 80).Draw(t, label+" takes")), "loop", "patch", "a", recorded.After(fmt.Sprint(r.Last()+5)))
				}
			}
			return model(r)
		}
		a, b := run("a"), run("b")
		view.Compare(a, b)
		for _, m := range []*view.Model{a, b} {
			require.True(t, slices.IsSortedFunc(m.Marks, func(x, y view.Mark) int { return int(x.Start - y.Start) }))
			for _, mark := range m.Marks {
				require.LessOrEqual(t, mark.Start, mark.End)
				require.LessOrEqual(t, mark.End, m.End)
			}
			for _, l := range m.Lanes {
				for i, v := range l.Versions {
					require.LessOrEqual(t, v.From, v.To)
					require.True(t, i == 0 || l.Versions[i-1].To <= v.From)
				}
			}
		}
		for i := range min(len(a.Steps), len(b.Steps)) {
			require.InDelta(t, a.Steps[i].At, b.Steps[i].At, 0.01)
		}
	})
}

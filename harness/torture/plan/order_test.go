package plan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
)

// job is a recording of a controller whose job is Pods: it lists them, looks at Nodes, deletes eight Pods, and leads.
func job() *history.History {
	h := &history.History{Requests: []history.Request{
		{Verb: "update", Group: leaseGroup, Resource: "leases"}, {Verb: "list", Resource: "pods"}, {Verb: "list", Resource: "nodes"},
		{Verb: "watch", Resource: "pods"}, {Verb: "create", Resource: "events"},
	}}
	for range 8 {
		h.Requests = append(h.Requests, history.Request{Verb: "delete", Resource: "pods", Namespace: "shop"})
	}
	for i := range h.Requests {
		h.Requests[i].ID = int64(i + 1)
	}
	return h
}

func inOrder() []Plan { return Possible(World{Baseline: job(), Resources: []string{"pods"}}) }

func TestTheMostTellingComesFirst(t *testing.T) {
	var told []string
	for _, p := range inOrder()[:20] {
		f := p.Faults[0]
		text := string(familyOf(p)) + " " + f.Verb + " " + f.Resource
		if !slices.Contains(told, text) {
			told = append(told, text)
		}
	}
	require.Equal(t, []string{
		"fails delete pods", "late delete pods", "answered 403 delete pods", "answered 409 delete pods", "reply lost delete pods", "for a while delete pods",
		"fails list pods", "fails list nodes", "fails watch pods", "watch late watch pods",
		"killed before delete pods", "killed after delete pods", "told to stop delete pods",
	}, told[:13])
}

// At each request, of all kinds of fault that look the same to a controller, one comes early, and another one at the next.
func TestKindsThatLookTheSameRotate(t *testing.T) {
	early, requests := map[string]int{}, map[int]bool{}
	var all int
	for i, p := range inOrder() {
		f := p.Faults[0]
		if f.Verb != "delete" || familyOf(p) != fails {
			continue
		}
		if all++; all <= 8 {
			require.Less(t, i, 120)
			early[p.Kind]++
			require.False(t, requests[f.From], "the request had its turn")
			requests[f.From] = true
		}
	}
	require.Equal(t, 5*8, all)
	require.Len(t, early, 5)
	for kind, n := range early {
		require.LessOrEqual(t, n, 2, kind)
	}
}

// All plans are in the order, each once, and always in the same.
func TestInOrder(t *testing.T) {
	ordered := inOrder()
	require.Equal(t, ordered, inOrder())
	seen := map[string]bool{}
	for _, p := range ordered {
		require.False(t, seen[p.Key()], p.Key())
		seen[p.Key()] = true
	}
	given := slices.Clone(ordered)
	slices.Reverse(given)
	again := World{Resources: []string{"pods"}}.inOrder(given, nil)
	require.ElementsMatch(t, ordered, again)
	require.Empty(t, World{}.inOrder(nil, nil))

	numbers := map[string][]int{} // of the requests, by kind
	for _, p := range ordered {
		numbers[fmt.Sprint(p.Kind, p.Faults[0].Verb)] = append(numbers[fmt.Sprint(p.Kind, p.Faults[0].Verb)], p.Faults[0].From)
	}
	require.False(t, slices.IsSorted(numbers["killed afterdelete"]), "the first requests are not always the first")
}

// A watch that breaks before it tells of a deletion may never tell of it.
func TestEventsOfDeletionsComeFirst(t *testing.T) {
	h := job()
	for i := range 20 {
		kind := "MODIFIED"
		if i == 13 {
			kind = "DELETED"
		}
		h.Events = append(h.Events, history.Event{Request: 4, Type: kind, Resource: "pods", Name: fmt.Sprint(i)})
	}
	for _, p := range Possible(World{Baseline: h, Resources: []string{"pods"}}) {
		if familyOf(p) == lossOfMany {
			require.Equal(t, 14, p.Faults[0].Event)
			return
		}
	}
	require.Fail(t, "there is no such plan")
}

// Each kind of write fails once before one of them is broken in another way: what is written last, such as a deletion, does not wait.
func TestEachWriteFailsEarly(t *testing.T) {
	h := job()
	for _, verb := range []string{"create", "patch"} {
		h.Requests = append(h.Requests, history.Request{ID: int64(len(h.Requests) + 1), Verb: verb, Resource: "pods", Namespace: "shop"})
	}
	var told []string
	for _, p := range Possible(World{Baseline: h, Resources: []string{"pods"}})[:4] {
		told = append(told, string(familyOf(p))+" "+p.Faults[0].Verb)
	}
	require.ElementsMatch(t, []string{"fails delete", "fails create", "fails patch"}, told[:3])
	require.NotContains(t, told[3], "fails")
}

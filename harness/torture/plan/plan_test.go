package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// baseline is the recording of a controller that lists and watches Pods, twice, deletes two, and reports it.
func baseline() *history.History {
	status := history.Request{Verb: "patch", Group: "apps", Resource: "deployments", Subresource: "status", Name: "d"}
	h := &history.History{Requests: []history.Request{
		{Verb: "get", URI: "/version"},
		{Verb: "list", Resource: "pods"},
		{Verb: "watch", Resource: "pods"},
		{Verb: "delete", Resource: "pods", Namespace: "shop", Name: "a"},
		{Verb: "get", URI: "/apis"},
		{Verb: "watch", Resource: "pods"},
		status,
		{Verb: "delete", Resource: "pods", Namespace: "shop", Name: "b"},
		{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}, // changes nothing
	}}
	for i := range h.Requests {
		h.Requests[i].ID = int64(i + 1)
	}
	h.Events = []history.Event{
		{Request: 3, Type: "ADDED", Resource: "pods"},
		{Request: 3, Type: "BOOKMARK", Resource: "pods"},
		{Request: 3, Type: "MODIFIED", Resource: "pods"},
		{Request: 6, Type: "BOOKMARK", Resource: "pods"},
		{Request: 6, Type: "DELETED", Resource: "pods"},
		{Request: 3, Type: "DELETED", Resource: "pods"},
		{Request: 99, Type: "ADDED", Resource: "pods"}, // of a watch that nobody knows
	}
	return h
}

func TestPossible(t *testing.T) {
	all := []string{
		"verb=list,resource=pods,nth=1",
		"verb=watch,resource=pods,nth=1", "verb=watch,resource=pods,nth=2",
		"verb=delete,resource=pods,nth=1", "verb=delete,resource=pods,nth=2",
		"verb=patch,group=apps,resource=deployments,subresource=status,nth=1",
		"verb=create,group=authorization.k8s.io,resource=selfsubjectaccessreviews,nth=1",
	}
	watches, writes := all[1:3], all[3:6]
	firsts, firstWrites := []string{all[0], all[1], all[3], all[5], all[6]}, []string{all[3], all[5]}
	ever := []string{"verb=delete,resource=pods,nth=1-", "verb=patch,group=apps,resource=deployments,subresource=status,nth=1-"}
	events := func(what string) []string {
		const first, second = "verb=watch,resource=pods,nth=1,watch=", "verb=watch,resource=pods,nth=2,watch="
		return []string{first + what + ",event=1", first + what + ",event=2", second + what + ",event=1", first + what + ",event=3"}
	}
	with := func(aims []string, what string) []string {
		var faults []string
		for _, aim := range aims {
			faults = append(faults, aim+","+what)
		}
		return faults
	}
	want := map[string][]string{
		"answered 429":                with(all, "refuse=429,retry-after=1s"),
		"answered 500":                with(all, "refuse=500"),
		"answered 503":                with(all, "refuse=503"),
		"request lost":                with(all, "lost=request"),
		"connection refused":          with(all, "down=1s"),
		"slow":                        with(all, "delay=2s"),
		"answered 403":                with(writes, "refuse=403"),
		"answered 409":                with(writes, "refuse=409"),
		"reply lost":                  with(writes, "lost=reply"),
		"reply lost, 504":             with(writes, "refuse=504,lost=reply"),
		"answered late":               with(writes, "answer-late=3s"),
		"no answer":                   with(firsts, "hang=20s"),
		"frozen before":               with(firstWrites, "freeze=before,freeze-for=5s"),
		"frozen after":                with(firstWrites, "freeze=after,freeze-for=5s"),
		"long outage":                 {all[0] + ",down=45s", all[3] + ",down=45s"},
		"killed before":               with(writes, "kill=before"),
		"killed after":                with(writes, "kill=after"),
		"told to stop":                with(writes, "delay=500ms,stop=before"),
		"control plane killed before": with(writes, "crash=before"),
		"control plane killed after":  with(writes, "crash=after"),
		"watch late":                  with(watches, "late=2s"),
		"no bookmarks":                with(watches, "watch=no-bookmarks"),
		"watch answered 410":          with(watches, "refuse=410"),
		"answered 500 for a while":    with(ever, "refuse=500,for=6s"),
		"answered 429 for a while":    with(ever, "refuse=429,retry-after=1s,for=6s"),
		"watch cut":                   events("cut"),
		"watch expired":               events("expired"),
		"unobserved":                  {events("unobserved")[0], events("unobserved")[1]}, // nothing follows the others
	}
	got := map[string][]string{}
	for _, plan := range Possible(World{Baseline: baseline()}) {
		require.Len(t, plan.Faults, 1)
		got[plan.Kind] = append(got[plan.Kind], plan.Faults[0].String())
	}
	for kind := range want {
		slices.Sort(want[kind])
		slices.Sort(got[kind])
	}
	require.Equal(t, want, got)
}

// An event can only be left out if another one of the same object follows it soon. One more bookmark than the one that ends the
// initial events can be left out too.
func TestFaultsThatWouldChangeNothing(t *testing.T) {
	begin := time.Now()
	event := func(after time.Duration, kind, name string) history.Event {
		return history.Event{Request: 1, Time: begin.Add(after), Type: kind, Resource: "pods", Name: name}
	}
	planned := func(uri string, events ...history.Event) (faults []string) {
		h := &history.History{Requests: []history.Request{{ID: 1, Verb: "watch", Resource: "pods", URI: uri}}, Events: events}
		for _, plan := range Possible(World{Baseline: h}) {
			if plan.Kind == "unobserved" || plan.Kind == "no bookmarks" {
				faults = append(faults, plan.Faults[0].String())
			}
		}
		return faults
	}
	const aim, initial = "verb=watch,resource=pods,nth=1,watch=", "/api/v1/pods?watch=1&sendInitialEvents=true"
	require.Empty(t, planned(initial, event(0, "ADDED", "a"), event(1, "BOOKMARK", ""), event(2, "ADDED", "b"), event(3*time.Second, "MODIFIED", "a")))
	require.Equal(t, []string{aim + "unobserved,event=2"}, planned(initial, event(0, "ADDED", "a"), event(1, "ADDED", "b"), event(time.Second, "MODIFIED", "b")))
	require.Equal(t, []string{aim + "no-bookmarks"}, planned(initial, event(0, "BOOKMARK", ""), event(time.Minute, "BOOKMARK", "")))
	require.Equal(t, []string{aim + "no-bookmarks"}, planned("/api/v1/pods?watch=1", event(time.Minute, "BOOKMARK", "")))
}

// planFaults returns the faults of a kind in the plans for these requests.
func planFaults(kind string, requests ...history.Request) (faults []string) {
	h := &history.History{}
	for i, q := range requests {
		q.ID = int64(i + 1)
		h.Requests = append(h.Requests, q)
	}
	for _, plan := range Possible(World{Baseline: h, Outside: []string{"cloud"}}) {
		if plan.Kind == kind {
			faults = append(faults, plan.Faults[0].String())
		}
	}
	return faults
}

// A fault at the second patch of a resource is not one at a patch of its status.
func TestFaultsOfResourcesWithSubresources(t *testing.T) {
	patch := history.Request{Verb: "patch", Group: "example.com", Resource: "networks"}
	status := patch
	status.Subresource = "status"
	get := history.Request{Verb: "get", Group: "example.com", Resource: "networks"}
	const main, ofStatus = "verb=patch,group=example.com,resource=networks,subresource=none,", "verb=patch,group=example.com,resource=networks,subresource=status,"
	require.ElementsMatch(t, []string{main + "nth=1,kill=after", ofStatus + "nth=1,kill=after", main + "nth=2,kill=after"},
		planFaults("killed after", get, patch, status, patch))
	require.Contains(t, planFaults("answered 500 for a while", patch, status), main+"nth=1-,refuse=500,for=6s")
	require.Contains(t, planFaults("slow", get, patch, status), "verb=get,group=example.com,resource=networks,nth=1,delay=2s", "it has no subresource that is read")
	otherProgram := status
	otherProgram.Program = "agent"
	require.Contains(t, planFaults("killed after", patch, otherProgram), "verb=patch,group=example.com,resource=networks,nth=1,kill=after")
}

// A fault at the second Event of the core group is not one at an Event of events.k8s.io.
func TestFaultsOfResourcesInTwoGroups(t *testing.T) {
	core, other := history.Request{Verb: "create", Resource: "events"}, history.Request{Verb: "create", Group: "events.k8s.io", Resource: "events"}
	const ofCore, ofOther = "verb=create,group=core,resource=events,", "verb=create,group=events.k8s.io,resource=events,"
	require.ElementsMatch(t, []string{ofCore + "nth=1,kill=after", ofCore + "nth=2,kill=after", ofOther + "nth=1,kill=after"},
		planFaults("killed after", core, other, core))
	require.ElementsMatch(t, []string{ofCore + "nth=1-,refuse=500,for=6s", ofOther + "nth=1-,refuse=500,for=6s"},
		planFaults("answered 500 for a while", core, other))
	otherVerb := other
	otherVerb.Verb = "patch"
	require.Contains(t, planFaults("killed after", core, otherVerb), "verb=create,resource=events,nth=1,kill=after")
	nodes := history.Request{Verb: "get", Resource: "nodes"}
	metrics := history.Request{Verb: "get", Group: "metrics.k8s.io", Resource: "nodes", Subresource: "x"}
	require.Contains(t, planFaults("slow", nodes, metrics), "verb=get,group=core,resource=nodes,nth=1,delay=2s")
}

// What takes long is for one request of each class: the one in the middle.
func TestLongPlansAreFew(t *testing.T) {
	deletion := history.Request{Verb: "delete", Resource: "pods"}
	creation := history.Request{Verb: "create", Group: "cloud", Resource: "networks"}
	lists := history.Request{Verb: "list", Group: "cloud", Resource: "networks"}
	requests := append(slices.Repeat([]history.Request{lists, creation}, 30), slices.Repeat([]history.Request{deletion}, 5)...)
	require.ElementsMatch(t, []string{"verb=list,group=cloud,resource=networks,nth=15,hang=20s",
		"verb=create,group=cloud,resource=networks,nth=15,hang=20s", "verb=delete,resource=pods,nth=3,hang=20s"}, planFaults("no answer", requests...))
	require.ElementsMatch(t, []string{"verb=create,group=cloud,resource=networks,nth=15,freeze=after,freeze-for=5s",
		"verb=delete,resource=pods,nth=3,freeze=after,freeze-for=5s"}, planFaults("frozen after", requests...))
	require.Equal(t, []string{"verb=delete,resource=pods,nth=1,down=45s"}, planFaults("long outage", requests...), "not of what is outside")
	require.Empty(t, planFaults("lease lost", requests...))
}

// A leader is frozen for longer than its Lease, and loses it in a plan of its own.
func TestPlansForALeader(t *testing.T) {
	lease := history.Request{Verb: "create", Group: "coordination.k8s.io", Resource: "leases"}
	renewal := lease
	renewal.Verb = "update"
	requests := []history.Request{lease, renewal, {Verb: "delete", Resource: "pods"}, renewal, renewal}
	require.Equal(t, []string{"verb=update,group=coordination.k8s.io,resource=leases,refuse=500,for=20s"}, planFaults("lease lost", requests...))
	require.Contains(t, planFaults("frozen before", requests...), "verb=delete,resource=pods,nth=1,freeze=before")
	require.Contains(t, planFaults("frozen after", requests...), "verb=update,group=coordination.k8s.io,resource=leases,nth=2,freeze=after")
}

// A leader is frozen for longer than its Lease lasts, unless that is too long.
func TestPlansForALongLease(t *testing.T) {
	lease := history.Request{ID: 1, Verb: "update", Group: leaseGroup, Resource: "leases"}
	plans := func(lasts time.Duration, requests ...history.Request) (faults []string) {
		for _, plan := range Possible(World{Baseline: &history.History{Requests: requests}, Lease: lasts, MostHeldUp: 3 * time.Minute}) {
			if strings.HasPrefix(plan.Kind, "frozen") || plan.Kind == "lease lost" {
				faults = append(faults, strings.TrimPrefix(plan.Faults[0].String(), "verb=update,group=coordination.k8s.io,resource=leases,"))
			}
		}
		return faults
	}
	for lasts, want := range map[time.Duration][]string{
		0:                 {"nth=1,freeze=before", "nth=1,freeze=after", "refuse=500,for=20s"},
		15 * time.Second:  {"nth=1,freeze=before", "nth=1,freeze=after", "refuse=500,for=20s"},
		137 * time.Second: {"nth=1,freeze=before,freeze-for=2m22s", "nth=1,freeze=after,freeze-for=2m22s", "refuse=500,for=2m22s"},
		time.Hour:         nil,
	} {
		require.ElementsMatch(t, want, plans(lasts, lease), lasts)
	}
	alone := history.Request{ID: 1, Verb: "delete", Resource: "pods"}
	require.Equal(t, plans(0, alone), plans(time.Hour, alone), "the program has no Lease")
	require.NotEmpty(t, plans(0, alone))
}

// One of several caches is behind for the whole run, also after its watch was opened again.
func TestOneCacheBehind(t *testing.T) {
	pods, nodes := history.Request{Verb: "watch", Resource: "pods"}, history.Request{Verb: "watch", Resource: "nodes"}
	require.Empty(t, planFaults("one cache behind", pods, pods))
	require.ElementsMatch(t, []string{"verb=watch,resource=pods,late=5s", "verb=watch,resource=nodes,late=5s"},
		planFaults("one cache behind", pods, nodes, pods))
}

func TestPossibleOfNothing(t *testing.T) {
	require.Empty(t, Possible(World{Baseline: &history.History{}}))
	require.Empty(t, Possible(World{Baseline: &history.History{
		Requests: []history.Request{{ID: 1, Verb: "get", URI: "/apis"}, {ID: 2, Verb: "watch", URI: "/what"}},
		Events:   []history.Event{{Request: 1, Type: "ADDED"}, {Request: 2, Type: "ADDED"}},
	}}))
}

// What is outside is spared the control plane's end, and suffers what only it can.
func TestPossibleOutside(t *testing.T) {
	kinds := func(outside ...string) (kinds []string) {
		h := &history.History{Requests: []history.Request{{Verb: "create", Group: "cloud", Resource: "networks"}}}
		for _, plan := range Possible(World{Baseline: h, Outside: outside}) {
			kinds = append(kinds, plan.Kind)
		}
		return kinds
	}
	inside, outside := kinds(), kinds("cloud")
	for kind, is := range map[string]bool{"control plane killed after": false, "answered 412": true, "done late": true, "answered 403 for a while": true, "killed after": true, "reply lost": true} {
		require.Equal(t, is, slices.Contains(outside, kind), kind)
	}
	require.Contains(t, inside, "control plane killed after")
	require.NotContains(t, inside, "done late")
}

func TestPossibleReadsOutside(t *testing.T) {
	h := &history.History{Requests: slices.Repeat([]history.Request{{Verb: "list", Group: "cloud", Resource: "networks"}}, 42)}
	all, some := Possible(World{Baseline: h}), Possible(World{Baseline: h, Outside: []string{"cloud"}})
	require.Len(t, all, 42*len(ofAny)+2) // and once: no answer, and a long outage
	require.Len(t, some, 9*len(ofAny)+1) // the 1st, the 6th, ...; and once no answer
}

// What the report prints replays what was run.
func TestPlansCanBeReplayed(t *testing.T) {
	all := Possible(World{Baseline: baseline()})
	for _, plan := range slices.Concat(all, Random(all, 1, 50)) {
		words := strings.Fields(plan.String())
		require.Len(t, words, 2*len(plan.Faults))
		for i, want := range plan.Faults {
			require.Equal(t, "--fault", words[2*i])
			got, err := apiproxy.ParseFault(words[2*i+1])
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	require.Empty(t, Plan{Kind: "undisturbed"}.String())
}

func TestCrashes(t *testing.T) {
	for name, c := range map[string]struct {
		effects []apiproxy.Effect
		want    bool
	}{
		"nothing":      {nil, false},
		"a kill":       {[]apiproxy.Effect{{Kill: apiproxy.Before}}, false},
		"a crash":      {[]apiproxy.Effect{{Crash: apiproxy.After}}, true},
		"one of three": {[]apiproxy.Effect{{Refuse: 500}, {Crash: apiproxy.Before}, {Kill: apiproxy.After}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var plan Plan
			for _, effect := range c.effects {
				plan.Faults = append(plan.Faults, apiproxy.Fault{Effect: effect})
			}
			require.Equal(t, c.want, plan.Crashes())
		})
	}
}

func TestRandom(t *testing.T) {
	all := Possible(World{Baseline: baseline()})
	plans := Random(all, 7, 40)
	require.Len(t, plans, 40)
	sizes := map[int]int{}
	for i, plan := range plans {
		require.Equal(t, fmt.Sprint("seed ", 7+i), plan.Kind)
		sizes[len(plan.Faults)]++
		for _, fault := range plan.Faults {
			require.True(t, slices.ContainsFunc(all, func(p Plan) bool { return p.Faults[0] == fault }))
		}
	}
	require.Len(t, sizes, 2)
	require.Positive(t, sizes[2])
	require.Positive(t, sizes[3])
	require.Equal(t, plans, Random(all, 7, 40), "the same seed draws the same")
	require.Equal(t, plans[3:4], Random(all, 10, 1), "one of them can be had by its own seed")
	other := Random(all, 1007, 40)
	for i := range plans {
		plans[i].Kind, other[i].Kind = "", ""
	}
	require.NotEqual(t, plans, other)
	require.Empty(t, Random(all, 7, 0))
}

// Informers start at the same time, so which of them sends its first request first is up to chance.
func TestTheOrderOfRequestsDoesNotMatter(t *testing.T) {
	other := baseline()
	slices.Reverse(other.Requests)
	for i, r := range other.Requests { // the first watch stays the first one
		if r.ID == 3 || r.ID == 6 {
			other.Requests[i].ID = 9 - r.ID
		}
	}
	all, allOther := Possible(World{Baseline: baseline()}), Possible(World{Baseline: other})
	texts := func(plans []Plan) (texts []string) {
		for _, p := range plans {
			texts = append(texts, p.Key()+" "+p.String())
		}
		return texts
	}
	require.Equal(t, texts(Random(all, 1, 100)), texts(Random(allOther, 1, 100)))
	require.ElementsMatch(t, texts(all), texts(allOther))
	perKind := func(plans []Plan) map[string][]string {
		order := map[string][]string{}
		for _, p := range plans {
			m := p.Faults[0].Match
			key := strings.Join([]string{p.Kind, m.Verb, m.Resource}, " ")
			order[key] = append(order[key], p.String())
		}
		return order
	}
	require.Equal(t, perKind(all), perKind(allOther))
}

// A resumed run knows the seeds that have been run, even if its baseline has one event more. Other plans are told apart by
// what they do.
func TestKey(t *testing.T) {
	all, more := Possible(World{Baseline: baseline()}), baseline()
	more.Events = append(more.Events, history.Event{Request: 3, Type: "ADDED", Resource: "pods"})
	before, after := Random(all, 1, 50), Random(Possible(World{Baseline: more}), 1, 50)
	require.NotEqual(t, before, after, "the same seeds draw other faults")
	keys := map[string]bool{}
	for i, plan := range before {
		require.Equal(t, plan.Key(), after[i].Key())
		keys[plan.Key()] = true
	}
	for _, plan := range all {
		keys[plan.Key()] = true
		keys[Plan{Kind: "replay", Faults: plan.Faults}.Key()] = true
	}
	require.Len(t, keys, 50+2*len(all))
}

func TestRandomOfNothing(t *testing.T) {
	require.Empty(t, Random(nil, 7, 3))
}

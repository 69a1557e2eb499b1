package oracle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// frontend calls all Pods of the frontend the same.
func frontend(resource, name string) string {
	if resource == "pods" && strings.HasPrefix(name, "frontend-") {
		return "frontend-*"
	}
	return name
}

// What was done to a request.
var (
	slow        = []history.Injection{{Kind: history.Delayed, Duration: 2 * time.Second}}
	late        = []history.Injection{{Kind: history.EventsLate, Duration: 2 * time.Second}}
	requestLost = []history.Injection{{Kind: history.RequestLost}}
	replyLost   = []history.Injection{{Kind: history.ReplyLost}}
	frozen      = []history.Injection{{Kind: history.ControllerFrozen, Duration: 5 * time.Second}}
	stopped     = []history.Injection{{Kind: history.ControllerStopped}, {Kind: history.Delayed, Duration: time.Second}}
	rebooted    = []history.Injection{{Kind: history.MachineRebooted, After: true}}
	powerCut    = []history.Injection{{Kind: history.PowerCut}}
	notStopped  = []history.Injection{{Kind: history.ControllerStopped, Skipped: "it had ended"}}
)

func refused(status int) []history.Injection {
	return []history.Injection{{Kind: history.Refused, Status: status}}
}

// because is a needless deletion.
func because(why string) []oracle.Needless {
	return []oracle.Needless{{What: "delete pods frontend-*", Why: why}}
}

func TestEffects(t *testing.T) {
	const deletes = "delete pods frontend-*"
	base := history.Request{Verb: "delete", Resource: "pods", Namespace: "shop", Name: "frontend-x"}
	for name, c := range map[string]struct {
		change  func(*history.Request)
		effects oracle.Effects // Attempts left out
	}{
		"done":          {func(r *history.Request) { r.Status = 200 }, oracle.Effects{Did: map[string]int{deletes: 1}}},
		"created":       {func(r *history.Request) { r.Status = 201 }, oracle.Effects{Did: map[string]int{deletes: 1}}},
		"a no-op":       {func(r *history.Request) { r.Status, r.NoOp = 200, true }, oracle.Effects{Needless: because("it was being deleted already")}},
		"not there":     {func(r *history.Request) { r.Status = 404 }, oracle.Effects{Needless: because("it did not exist any more")}},
		"a conflict":    {func(r *history.Request) { r.Status = 409 }, oracle.Effects{Needless: because("it had changed since it was read")}},
		"no answer":     {func(r *history.Request) { r.Error = "broken off" }, oracle.Effects{Unknown: map[string]int{deletes: 1}, Disturbed: 1}},
		"an error":      {func(r *history.Request) { r.Status = 500 }, oracle.Effects{Disturbed: 1}},
		"too many":      {func(r *history.Request) { r.Status = 429 }, oracle.Effects{Disturbed: 1}},
		"refused":       {func(r *history.Request) { r.Status, r.Injected = 403, refused(403) }, oracle.Effects{Disturbed: 1}},
		"refused badly": {func(r *history.Request) { r.Status, r.Injected = 500, refused(500) }, oracle.Effects{Disturbed: 1}},
		"slow":          {func(r *history.Request) { r.Status, r.Injected = 200, slow }, oracle.Effects{Did: map[string]int{deletes: 1}}},
		"a slow no-op":  {func(r *history.Request) { r.Status, r.NoOp, r.Injected = 200, true, slow }, oracle.Effects{Needless: because("it was being deleted already")}},
		"too slow":      {func(r *history.Request) { r.Status, r.Injected = 404, slow }, oracle.Effects{Needless: because("it did not exist any more")}},
		"slow and lost": {func(r *history.Request) { r.Injected, r.Error = slices.Concat(slow, requestLost), "broken off" }, oracle.Effects{Unknown: map[string]int{deletes: 1}, Disturbed: 1}},
		"a slow watch":  {func(r *history.Request) { r.Status, r.Verb, r.Injected = 200, "watch", late }, oracle.Effects{Disturbed: 1}},
		"told to stop":  {func(r *history.Request) { r.Status, r.Injected = 200, stopped }, oracle.Effects{Did: map[string]int{deletes: 1}, Disturbed: 1}},
		"not stopped":   {func(r *history.Request) { r.Status, r.Injected = 200, notStopped }, oracle.Effects{Did: map[string]int{deletes: 1}}},
		"rebooted":      {func(r *history.Request) { r.Status, r.Injected = 200, rebooted }, oracle.Effects{Did: map[string]int{deletes: 1}, Disturbed: 1}},
		"a power cut":   {func(r *history.Request) { r.Status, r.Injected = 200, powerCut }, oracle.Effects{Did: map[string]int{deletes: 1}, Disturbed: 1}},
		"frozen":        {func(r *history.Request) { r.Status, r.Injected = 200, frozen }, oracle.Effects{Did: map[string]int{deletes: 1}, Disturbed: 1}},
		"frozen, and refused": {func(r *history.Request) { r.Status, r.Injected = 409, frozen },
			oracle.Effects{Disturbed: 1}},
		"frozen at a renewal": {func(r *history.Request) {
			r.Status, r.Verb, r.Group, r.Resource, r.Injected = 200, "update", "coordination.k8s.io", "leases", frozen
		},
			oracle.Effects{Disturbed: 1}},
		"half an answer": {func(r *history.Request) { r.Status, r.Error = 200, "unexpected EOF" },
			oracle.Effects{Unknown: map[string]int{deletes: 1}, Disturbed: 1}},
		"a lost reply": {func(r *history.Request) {
			r.Status, r.Injected, r.Error, r.RVAfter = 200, replyLost, "broken off", "7"
		},
			oracle.Effects{Did: map[string]int{deletes: 1}, Disturbed: 1}},
		"a lost request": {func(r *history.Request) { r.Injected, r.Error = requestLost, "broken off" },
			oracle.Effects{Unknown: map[string]int{deletes: 1}, Disturbed: 1}},
		"of a subresource": {func(r *history.Request) { r.Status, r.Subresource, r.Verb = 200, "status", "update" },
			oracle.Effects{Did: map[string]int{"update pods/status frontend-*": 1}}},
		"of a group": {func(r *history.Request) { r.Status, r.Group, r.Resource = 200, "apps", "deployments" },
			oracle.Effects{Did: map[string]int{"delete deployments.apps frontend-x": 1}}},
		"without a name": {func(r *history.Request) { r.Status, r.Name = 200, "" }, oracle.Effects{Did: map[string]int{"delete pods": 1}}},
		"of the namespace": {func(r *history.Request) { r.Status, r.Resource, r.Name = 200, "namespaces", "shop" },
			oracle.Effects{Did: map[string]int{"delete namespaces NAMESPACE": 1}}},
		"no write":               {func(r *history.Request) { r.Status, r.Verb = 200, "get" }, oracle.Effects{}},
		"a dry run":              {func(r *history.Request) { r.Status, r.DryRun = 200, true }, oracle.Effects{}},
		"what cannot be read":    {func(r *history.Request) { r.Status, r.Verb = 404, "get" }, oracle.Effects{}},
		"a read that is refused": {func(r *history.Request) { r.Status, r.Verb, r.Injected = 500, "list", refused(500) }, oracle.Effects{Disturbed: 1}},
		"an event":               {func(r *history.Request) { r.Status, r.Verb, r.Resource = 201, "create", "events" }, oracle.Effects{}},
		"a lease":                {func(r *history.Request) { r.Status, r.Verb, r.Resource = 200, "update", "leases" }, oracle.Effects{}},
		"an event that is refused": {func(r *history.Request) {
			r.Status, r.Verb, r.Resource, r.Injected = 500, "create", "events", refused(500)
		},
			oracle.Effects{Disturbed: 1}},
		"an event of the newer group": {func(r *history.Request) {
			r.Status, r.Verb, r.Group, r.Resource = 201, "create", "events.k8s.io", "events"
		},
			oracle.Effects{}},
	} {
		t.Run(name, func(t *testing.T) {
			request := base
			c.change(&request)
			got := oracle.EffectsOf(&history.History{Requests: []history.Request{request}}, oracle.Scope{Namespace: "shop"}, []string{"pods"}, frontend)
			if c.effects.Did == nil {
				c.effects.Did = map[string]int{}
			}
			if c.effects.Unknown == nil {
				c.effects.Unknown = map[string]int{}
			}
			got.Attempts = nil
			require.Equal(t, c.effects, got)
		})
	}
}

func TestEventsAndLeasesCountWhereTheyAreWatched(t *testing.T) {
	h := &history.History{Requests: []history.Request{
		{Verb: "create", Resource: "events", Name: "e", Status: 201},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: "l", Status: 200},
	}}
	for name, c := range map[string]struct {
		resources []string
		want      map[string]int
	}{
		"neither": {[]string{"pods"}, map[string]int{}},
		"events":  {[]string{"pods", "events"}, map[string]int{"create events e": 1}},
		"leases":  {[]string{"leases"}, map[string]int{"update leases.coordination.k8s.io l": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := oracle.EffectsOf(h, oracle.Scope{Namespace: "shop"}, c.resources, frontend)
			require.Equal(t, c.want, got.Did)
			require.Len(t, got.Attempts, len(c.want))
		})
	}
}

func TestEffectsAddUp(t *testing.T) {
	h := &history.History{Requests: []history.Request{
		{Verb: "delete", Resource: "pods", Name: "frontend-x", Status: 500, Injected: refused(500)},
		{Verb: "delete", Resource: "pods", Name: "frontend-x", Status: 200},
		{Verb: "delete", Resource: "pods", Name: "frontend-y", Error: "broken off"},
		{Verb: "delete", Resource: "pods", Name: "frontend-y", Status: 200},
		{Verb: "delete", Resource: "pods", Name: "frontend-y", Status: 404},
		// It was touched meanwhile, so its version is another; but it was on its way out already.
		{Verb: "delete", Resource: "pods", Name: "frontend-z", Status: 200, UID: "z", RVBefore: "1", RVAfter: "2", Injected: replyLost, Error: "broken off"},
		{Verb: "patch", Resource: "pods", Name: "frontend-z", Status: 200, UID: "z", RVBefore: "3", RVAfter: "4"},
		{Verb: "delete", Resource: "pods", Name: "frontend-z", Status: 200, UID: "z", RVBefore: "2", RVAfter: "4"},
		{Verb: "delete", Resource: "pods", Name: "frontend-z", Status: 200, UID: "another z", RVBefore: "8", RVAfter: "9"},
		{Verb: "list", Resource: "pods", Status: 200},
	}}
	require.Equal(t, oracle.Effects{
		Did:      map[string]int{"delete pods frontend-*": 4, "patch pods frontend-*": 1},
		Unknown:  map[string]int{"delete pods frontend-*": 1},
		Needless: append(because("it did not exist any more"), because("it was being deleted already")...), Disturbed: 3,
		Attempts: map[string]int{"delete pods frontend-x": 2, "delete pods frontend-y": 3, "delete pods frontend-z": 3, "patch pods frontend-z": 1},
	}, oracle.EffectsOf(h, oracle.Scope{Namespace: "shop"}, []string{"pods"}, frontend))
}

// Until the cache has caught up, a controller gets the same conflict again at each retry. One that retries without a pause
// gets more of them.
func TestRepeatedConflicts(t *testing.T) {
	const enough = 100
	conflict := history.Request{Verb: "update", Resource: "pods", Subresource: "status", Namespace: "shop", Name: "a", Status: 409, RVBefore: "7"}
	other := func(change func(*history.Request)) history.Request {
		r := conflict
		change(&r)
		return r
	}
	repeated := func(r history.Request, n int) []history.Request { return slices.Repeat([]history.Request{r}, n) }
	for name, c := range map[string]struct {
		requests []history.Request
		want     int
	}{
		"at one version":       {repeated(conflict, 9), 1},
		"at another version":   {append(repeated(conflict, 9), other(func(r *history.Request) { r.RVBefore = "8" })), 2},
		"of another object":    {append(repeated(conflict, 9), other(func(r *history.Request) { r.Name = "b" })), 2},
		"in another place":     {append(repeated(conflict, 9), other(func(r *history.Request) { r.Namespace = "inn" })), 2},
		"without a version":    {repeated(other(func(r *history.Request) { r.RVBefore = "" }), 9), 9},
		"not of a conflict":    {repeated(other(func(r *history.Request) { r.Status = 404 }), 9), 9},
		"without a pause":      {repeated(conflict, enough+3), 4},
		"that were injected":   {repeated(other(func(r *history.Request) { r.Injected = refused(409) }), 9), 0},
		"no-ops, at a version": {repeated(other(func(r *history.Request) { r.Status, r.NoOp = 200, true }), 9), 9},
	} {
		t.Run(name, func(t *testing.T) {
			got := oracle.EffectsOf(&history.History{Requests: c.requests}, oracle.Scope{Namespace: "shop"}, []string{"pods"}, frontend)
			require.Len(t, got.Needless, c.want)
		})
	}
}

// Where the recording shows that the controller's cache was behind, a needless write says so.
func TestNeedlessWritesOfAStaleCache(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1e9+int64(s), 0) }
	deletion := history.Request{Verb: "delete", Resource: "pods", Namespace: "shop", Name: "frontend-x", Start: at(10), Status: 404}
	again := deletion
	again.Status, again.NoOp, again.RVBefore, again.RVAfter = 200, true, "7", "7"
	event := history.Event{Resource: "pods", Namespace: "shop", Name: "frontend-x", Type: "MODIFIED", ResourceVersion: "7", Time: at(11)}
	other := func(change func(*history.Event)) history.Event {
		e := event
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		request history.Request
		event   history.Event
		stale   string
	}{
		"the event came later":           {deletion, event, "the MODIFIED event of it reached the controller only later"},
		"of the version in the answer":   {again, event, "the MODIFIED event of it reached the controller only later"},
		"of a later version":             {again, other(func(e *history.Event) { e.ResourceVersion = "8" }), ""},
		"the event had come before":      {deletion, other(func(e *history.Event) { e.Time = at(9) }), ""},
		"the event of another Pod":       {deletion, other(func(e *history.Event) { e.Name = "frontend-y" }), ""},
		"the event in another namespace": {deletion, other(func(e *history.Event) { e.Namespace = "inn" }), ""},
		"a bookmark":                     {deletion, other(func(e *history.Event) { e.Type = "BOOKMARK" }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history.History{Requests: []history.Request{c.request}, Events: []history.Event{c.event}}
			got := oracle.EffectsOf(h, oracle.Scope{Namespace: "shop"}, []string{"pods"}, frontend).Needless
			require.Len(t, got, 1)
			require.Equal(t, c.stale, got[0].Stale)
		})
	}
}

// expected is what runs with these counts make expected.
func expected(runs ...oracle.Effects) *oracle.Expected {
	e := new(oracle.Expected)
	for _, run := range runs {
		e.Add(run)
	}
	return e
}

// noOps are as many writes of different kinds, none of which changed anything.
func noOps(n int) (all []oracle.Needless) {
	for i := range n {
		all = append(all, oracle.Needless{What: fmt.Sprint("patch pods ", i), Why: "it changed nothing"})
	}
	return all
}

// needless are as many writes that could not change anything.
func needless(n int) []oracle.Needless {
	return slices.Repeat([]oracle.Needless{{What: "delete pods a", Why: "it did not exist any more"}}, n)
}

func TestExpectedSettles(t *testing.T) {
	var e oracle.Expected
	require.True(t, e.Add(oracle.Effects{Did: map[string]int{"a": 2}}), "the first run is news")
	require.False(t, e.Add(oracle.Effects{Did: map[string]int{"a": 2}}))
	require.True(t, e.Add(oracle.Effects{Did: map[string]int{"a": 3}}))
	require.True(t, e.Add(oracle.Effects{}))
	require.True(t, e.Add(oracle.Effects{Did: map[string]int{"a": 1, "b": 1}}))
	require.False(t, e.Add(oracle.Effects{Did: map[string]int{"a": 2, "b": 0}}))
	require.Equal(t, map[string]oracle.Range{"a": {0, 3}, "b": {0, 1}}, e.Did)
	require.True(t, e.Add(oracle.Effects{Needless: needless(1)}))
	require.False(t, e.Add(oracle.Effects{Needless: needless(1)}))
	require.False(t, e.Add(oracle.Effects{Changes: map[string]int{"added pods x": 1}}), "the first of which that is known")
	require.False(t, e.Add(oracle.Effects{}), "what is not known is not nothing")
	require.Empty(t, e.Uneven(nil))
	require.True(t, e.Add(oracle.Effects{Changes: map[string]int{}}))
	require.Equal(t, []string{"added pods x"}, e.Uneven(nil))
	require.Empty(t, e.Uneven([]string{"added pods"}))
}

// What is added to a clone is not expected by the original, and the other way round.
func TestAClonedExpectation(t *testing.T) {
	one := oracle.Effects{Did: map[string]int{"create pods": 1}, Changes: map[string]int{"pods": 1}}
	two := oracle.Effects{Did: map[string]int{"create pods": 2}, Changes: map[string]int{"pods": 2}}
	e := expected(one)
	clone := e.Clone()
	require.Equal(t, *e, clone)
	require.True(t, clone.Add(two))
	require.Equal(t, oracle.Range{Min: 1, Max: 1}, e.Did["create pods"])
	require.Equal(t, oracle.Range{Min: 1, Max: 1}, e.Changes["pods"])
	again := clone.Clone()
	require.False(t, again.Add(two), "known")
	require.False(t, clone.Add(one), "known")
}

// If no run without faults has shown what came and went, because the API server had lost states, nothing can be said of a run that does.
func TestNothingIsExpectedOfWhatIsNotKnown(t *testing.T) {
	var e oracle.Expected
	e.Add(oracle.Effects{})
	require.Empty(t, e.Deviations(oracle.Effects{Changes: map[string]int{"added pods x": 1}}, 0, nil))
	e.Add(oracle.Effects{Changes: map[string]int{"added pods x": 1}})
	require.Empty(t, e.Deviations(oracle.Effects{Changes: map[string]int{"added pods x": 1}}, 0, nil))
	require.Empty(t, e.Deviations(oracle.Effects{}, 0, nil))
	require.Len(t, e.Deviations(oracle.Effects{Changes: map[string]int{"added pods x": 2}}, 0, nil), 1)
}

func TestDeviations(t *testing.T) {
	counts := func(deletes, updates int) oracle.Effects {
		return oracle.Effects{Did: map[string]int{"delete pods a": deletes, "update pods/status a": updates}}
	}
	changes := func(n int) oracle.Effects {
		return oracle.Effects{Did: map[string]int{}, Changes: map[string]int{"added pods a": n}}
	}
	with := func(e oracle.Effects, change func(*oracle.Effects)) oracle.Effects {
		change(&e)
		return e
	}
	one := counts(1, 1)
	const gone = "delete pods a: %s, although it did not exist any more; without faults there are %d such writes, and %d requests were disturbed"
	for name, c := range map[string]struct {
		expected  *oracle.Expected
		run       oracle.Effects
		injected  int
		mayDiffer []string
		want      []string // messages; a tolerable one begins with "note: "
	}{
		"nothing":                        {expected: expected(oracle.Effects{})},
		"the same":                       {expected: expected(one), run: one},
		"more deletes":                   {expected: expected(one), run: counts(3, 1), want: []string{"delete pods a: 3 times, should be 1"}},
		"more deletes, though disturbed": {expected: expected(one), run: counts(2, 1), injected: 9, want: []string{"delete pods a: 2 times, should be 1"}},
		"more collections, though disturbed": {expected: expected(oracle.Effects{Did: map[string]int{"deletecollection pods": 1}}), run: oracle.Effects{Did: map[string]int{"deletecollection pods": 2}}, injected: 9,
			want: []string{"deletecollection pods: 2 times, should be 1"}},
		"more creations, though disturbed": {expected: expected(oracle.Effects{Did: map[string]int{"create pods": 1}}), run: oracle.Effects{Did: map[string]int{"create pods": 2}}, injected: 9,
			want: []string{"create pods: 2 times, should be 1"}},
		"fewer deletes":                    {expected: expected(counts(3, 1)), run: one, want: []string{"note: delete pods a: once, should be 3"}},
		"none":                             {expected: expected(one), run: oracle.Effects{}, want: []string{"note: delete pods a: 0 times, should be 1", "note: update pods/status a: 0 times, should be 1"}},
		"one that never was":               {expected: expected(oracle.Effects{}), run: counts(1, 0), want: []string{"delete pods a: once, should be 0"}},
		"more updates":                     {expected: expected(one), run: counts(1, 2), want: []string{"update pods/status a: 2 times, should be 1"}},
		"one more update, and disturbed":   {expected: expected(one), run: counts(1, 2), injected: 1},
		"one more update, after a failure": {expected: expected(one), run: with(counts(1, 2), func(e *oracle.Effects) { e.Disturbed = 1 })},
		"two more of a status, disturbed":  {expected: expected(one), run: counts(1, 3), injected: 1}, // what has failed, and that it no longer does
		"three more, and disturbed":        {expected: expected(one), run: counts(1, 4), injected: 1, want: []string{"update pods/status a: 4 times, should be 1"}},
		"two more of an object, disturbed": {expected: expected(oracle.Effects{Did: map[string]int{"update pods a": 1}}), run: oracle.Effects{Did: map[string]int{"update pods a": 3}}, injected: 1,
			want: []string{"update pods a: 3 times, should be 1"}},
		"fewer updates":     {expected: expected(counts(1, 4)), run: counts(1, 2), want: []string{"note: update pods/status a: 2 times, should be 4"}},
		"within the spread": {expected: expected(counts(1, 2), counts(1, 4)), run: counts(1, 3)},
		"beyond the spread": {expected: expected(counts(1, 2), counts(1, 4)), run: counts(1, 5), want: []string{"update pods/status a: 5 times, should be 2 to 4"}},
		"below the spread":  {expected: expected(counts(1, 2), counts(1, 4)), run: counts(1, 1), want: []string{"note: update pods/status a: once, should be 2 to 4"}},
		"what is unknown may have been done": {expected: expected(counts(2, 1)),
			run: with(one, func(e *oracle.Effects) { e.Unknown = map[string]int{"delete pods a": 1} })},
		"what is unknown is not too much": {expected: expected(one),
			run: with(one, func(e *oracle.Effects) { e.Unknown = map[string]int{"delete pods a": 5} })},
		"what may differ":      {expected: expected(one), run: counts(3, 1), mayDiffer: []string{"delete pods"}},
		"what else may differ": {expected: expected(one), run: counts(3, 1), mayDiffer: []string{"update", "pods"}, want: []string{"delete pods a: 3 times, should be 1"}},

		"needless":                     {expected: expected(oracle.Effects{Needless: needless(1)}), run: oracle.Effects{Needless: needless(2)}, want: []string{fmt.Sprintf(gone, "2 times", 1, 0)}},
		"less needless":                {expected: expected(oracle.Effects{Needless: needless(2)}), run: oracle.Effects{Needless: needless(1)}},
		"needless, but disturbed":      {expected: expected(oracle.Effects{Needless: needless(1)}), run: oracle.Effects{Needless: needless(3), Disturbed: 2}},
		"needless, and disturbed":      {expected: expected(oracle.Effects{Needless: needless(1)}), run: oracle.Effects{Needless: needless(4), Disturbed: 2}, want: []string{fmt.Sprintf(gone, "4 times", 1, 2)}},
		"needless, one of each kind":   {expected: expected(oracle.Effects{}), run: oracle.Effects{Needless: noOps(9), Disturbed: 1}},
		"needless, one in all":         {expected: expected(oracle.Effects{}), run: oracle.Effects{Needless: noOps(1)}, want: []string{"patch pods 0: once, although it changed nothing; without faults there are 0 such writes, and 0 requests were disturbed"}},
		"needless, two of one kind":    {expected: expected(oracle.Effects{}), run: oracle.Effects{Needless: needless(2), Disturbed: 1}, want: []string{fmt.Sprintf(gone, "2 times", 0, 1)}},
		"needless, as without a fault": {expected: expected(oracle.Effects{Needless: noOps(2)}), run: oracle.Effects{Needless: append(noOps(2), noOps(2)...), Disturbed: 1}},
		"needless, but may differ":     {expected: expected(one), run: with(one, func(e *oracle.Effects) { e.Needless = needless(7) }), mayDiffer: []string{"needless"}},

		"created too often":     {expected: expected(changes(1)), run: changes(2), want: []string{"added pods a: 2 times, should be 1"}},
		"never created":         {expected: expected(changes(1)), run: changes(0), want: []string{"added pods a: 0 times, should be 1"}},
		"created, and may":      {expected: expected(changes(0)), run: changes(2), mayDiffer: []string{"added pods"}},
		"changes are not known": {expected: expected(changes(1)), run: oracle.Effects{}},
		"changes hide the writes": {expected: expected(changes(1)), run: with(changes(2), func(e *oracle.Effects) { e.Did = map[string]int{"create pods a": 2} }),
			want: []string{"added pods a: 2 times, should be 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range c.expected.Deviations(c.run, c.injected, c.mayDiffer) {
				if d.Tolerable {
					d.Message = "note: " + d.Message
				}
				got = append(got, d.Message)
			}
			require.Equal(t, c.want, got)
		})
	}
}

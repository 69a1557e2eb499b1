package oracle_test

import (
	"maps"
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
)

func refused(status int) []history.Injection {
	return []history.Injection{{Kind: history.Refused, Status: status}}
}

func TestEffects(t *testing.T) {
	const deletes = "delete pods frontend-*"
	base := history.Request{Verb: "delete", Resource: "pods", Namespace: "shop", Name: "frontend-x"}
	for name, c := range map[string]struct {
		change  func(*history.Request)
		effects oracle.Effects // Tries left out
	}{
		"done":          {func(r *history.Request) { r.Status = 200 }, oracle.Effects{Did: map[string]int{deletes: 1}}},
		"created":       {func(r *history.Request) { r.Status = 201 }, oracle.Effects{Did: map[string]int{deletes: 1}}},
		"a no-op":       {func(r *history.Request) { r.Status, r.NoOp = 200, true }, oracle.Effects{Needless: 1}},
		"not there":     {func(r *history.Request) { r.Status = 404 }, oracle.Effects{Needless: 1}},
		"a conflict":    {func(r *history.Request) { r.Status = 409 }, oracle.Effects{Needless: 1}},
		"no answer":     {func(r *history.Request) { r.Error = "broken off" }, oracle.Effects{Unknown: map[string]int{deletes: 1}, Excused: 1}},
		"an error":      {func(r *history.Request) { r.Status = 500 }, oracle.Effects{Excused: 1}},
		"too many":      {func(r *history.Request) { r.Status = 429 }, oracle.Effects{Excused: 1}},
		"refused":       {func(r *history.Request) { r.Status, r.Injected = 403, refused(403) }, oracle.Effects{Excused: 1}},
		"refused badly": {func(r *history.Request) { r.Status, r.Injected = 500, refused(500) }, oracle.Effects{Excused: 1}},
		"slow":          {func(r *history.Request) { r.Status, r.Injected = 200, slow }, oracle.Effects{Did: map[string]int{deletes: 1}}},
		"a slow no-op":  {func(r *history.Request) { r.Status, r.NoOp, r.Injected = 200, true, slow }, oracle.Effects{Needless: 1}},
		"too slow":      {func(r *history.Request) { r.Status, r.Injected = 404, slow }, oracle.Effects{Needless: 1}},
		"slow and lost": {func(r *history.Request) { r.Injected, r.Error = slices.Concat(slow, requestLost), "broken off" }, oracle.Effects{Unknown: map[string]int{deletes: 1}, Excused: 1}},
		"a slow watch":  {func(r *history.Request) { r.Status, r.Verb, r.Injected = 200, "watch", late }, oracle.Effects{Excused: 1}},
		"half an answer": {func(r *history.Request) { r.Status, r.Error = 200, "unexpected EOF" },
			oracle.Effects{Unknown: map[string]int{deletes: 1}, Excused: 1}},
		"a lost reply": {func(r *history.Request) {
			r.Status, r.Injected, r.Error, r.RVAfter = 200, replyLost, "broken off", "7"
		},
			oracle.Effects{Did: map[string]int{deletes: 1}, Excused: 1}},
		"a lost request": {func(r *history.Request) { r.Injected, r.Error = requestLost, "broken off" },
			oracle.Effects{Unknown: map[string]int{deletes: 1}, Excused: 1}},
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
		"a read that is refused": {func(r *history.Request) { r.Status, r.Verb, r.Injected = 500, "list", refused(500) }, oracle.Effects{Excused: 1}},
		"an event":               {func(r *history.Request) { r.Status, r.Verb, r.Resource = 201, "create", "events" }, oracle.Effects{}},
		"a lease":                {func(r *history.Request) { r.Status, r.Verb, r.Resource = 200, "update", "leases" }, oracle.Effects{}},
		"an event that is refused": {func(r *history.Request) {
			r.Status, r.Verb, r.Resource, r.Injected = 500, "create", "events", refused(500)
		},
			oracle.Effects{Excused: 1}},
		"an event of the newer group": {func(r *history.Request) {
			r.Status, r.Verb, r.Group, r.Resource = 201, "create", "events.k8s.io", "events"
		},
			oracle.Effects{}},
	} {
		t.Run(name, func(t *testing.T) {
			request := base
			c.change(&request)
			got := oracle.EffectsOf(&history.History{Requests: []history.Request{request}}, "shop", []string{"pods"}, frontend)
			if c.effects.Did == nil {
				c.effects.Did = map[string]int{}
			}
			if c.effects.Unknown == nil {
				c.effects.Unknown = map[string]int{}
			}
			got.Tries = nil
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
			got := oracle.EffectsOf(h, "shop", c.resources, frontend)
			require.Equal(t, c.want, got.Did)
			require.Len(t, got.Tries, len(c.want))
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
		Needless: 2, Excused: 3,
		Tries: map[string]int{"delete pods frontend-x": 2, "delete pods frontend-y": 3, "delete pods frontend-z": 3, "patch pods frontend-z": 1},
	}, oracle.EffectsOf(h, "shop", []string{"pods"}, frontend))
}

func TestCompareEffects(t *testing.T) {
	counts := func(n int) map[string]int { return map[string]int{"delete pods a": n, "update pods/status a": 1} }
	one := oracle.Effects{Did: counts(1)}
	for name, c := range map[string]struct {
		want, got          oracle.Effects
		mayDiffer          []string
		tooMuch, tooLittle string
	}{
		"nothing":  {},
		"the same": {want: one, got: one},
		"more":     {want: one, got: oracle.Effects{Did: counts(3)}, tooMuch: "delete pods a: 3 times, should be 1"},
		"less":     {want: oracle.Effects{Did: counts(3)}, got: one, tooLittle: "delete pods a: 1 times, should be 3"},
		"never":    {want: one, got: oracle.Effects{}, tooLittle: "delete pods a: 0 times, should be 1"},
		"out of the blue": {want: oracle.Effects{}, got: oracle.Effects{Did: map[string]int{"delete pods z": 1}},
			tooMuch: "delete pods z: 1 times, should be 0"},
		"both": {want: oracle.Effects{Did: map[string]int{"a": 1, "b": 2}}, got: oracle.Effects{Did: map[string]int{"a": 2, "b": 1}},
			tooMuch: "a: 2 times, should be 1", tooLittle: "b: 1 times, should be 2"},
		"the first counts": {want: oracle.Effects{Did: map[string]int{}}, got: oracle.Effects{Did: map[string]int{"b": 1, "a": 1}},
			tooMuch: "a: 1 times, should be 0"},
		"what is unknown may have been done": {want: oracle.Effects{Did: counts(2)},
			got: oracle.Effects{Did: counts(1), Unknown: map[string]int{"delete pods a": 1}}},
		"what is unknown may be too little": {want: oracle.Effects{Did: counts(3)},
			got:       oracle.Effects{Did: counts(1), Unknown: map[string]int{"delete pods a": 1}},
			tooLittle: "delete pods a: 1 times, should be 3"},
		"what is unknown is not too much": {want: one, got: oracle.Effects{Did: counts(1), Unknown: map[string]int{"delete pods a": 5}}},
		"what may differ":                 {want: one, got: oracle.Effects{Did: counts(3)}, mayDiffer: []string{"delete pods"}},
		"what may differ, less":           {want: oracle.Effects{Did: counts(3)}, got: one, mayDiffer: []string{"delete "}},
		"what else may differ": {want: one, got: oracle.Effects{Did: counts(3)}, mayDiffer: []string{"update", "pods"},
			tooMuch: "delete pods a: 3 times, should be 1"},

		"needless": {want: oracle.Effects{Needless: 1}, got: oracle.Effects{Needless: 2},
			tooMuch: "2 writes that could change nothing; undisturbed it makes 1, and 0 requests were disturbed"},
		"needless, but less":       {want: oracle.Effects{Needless: 2}, got: oracle.Effects{Needless: 1}},
		"needless, but disturbed":  {want: oracle.Effects{Needless: 1}, got: oracle.Effects{Needless: 3, Excused: 2}},
		"needless, and disturbed":  {want: oracle.Effects{Needless: 1}, got: oracle.Effects{Needless: 4, Excused: 2}, tooMuch: "4 writes that could change nothing; undisturbed it makes 1, and 2 requests were disturbed"},
		"needless, but may differ": {want: one, got: oracle.Effects{Did: counts(1), Needless: 7}, mayDiffer: []string{"needless"}},
		"needless, and too little": {want: one, got: oracle.Effects{Needless: 1}, tooLittle: "delete pods a: 0 times, should be 1",
			tooMuch: "1 writes that could change nothing; undisturbed it makes 0, and 0 requests were disturbed"},
		"needless, and too much": {want: one, got: oracle.Effects{Did: counts(2), Needless: 1}, tooMuch: "delete pods a: 2 times, should be 1"},

		"came too often": {want: oracle.Effects{Changes: map[string]int{"added pods a": 1}}, got: oracle.Effects{Changes: map[string]int{"added pods a": 2}},
			tooMuch: "added pods a: 2 times, should be 1"},
		"never went": {want: oracle.Effects{Changes: map[string]int{"deleted pods a": 1}}, got: oracle.Effects{Changes: map[string]int{}},
			tooLittle: "deleted pods a: 0 times, should be 1"},
		"came too often, and may": {want: oracle.Effects{Changes: map[string]int{}}, got: oracle.Effects{Changes: map[string]int{"added pods a": 2}},
			mayDiffer: []string{"added pods"}},
		"changes before writes": {want: oracle.Effects{Did: counts(1), Changes: map[string]int{"added pods a": 1}},
			got: oracle.Effects{Did: counts(2), Changes: map[string]int{"added pods a": 2}}, tooMuch: "added pods a: 2 times, should be 1"},
		"writes where changes are the same": {want: oracle.Effects{Did: counts(1), Changes: map[string]int{"added pods a": 1}},
			got: oracle.Effects{Did: counts(2), Changes: map[string]int{"added pods a": 1}}, tooMuch: "delete pods a: 2 times, should be 1"},
		"changes that are not known": {want: oracle.Effects{Did: counts(1), Changes: map[string]int{"added pods a": 1}}, got: one},
		"changes of which what is unknown is none": {want: oracle.Effects{Changes: map[string]int{"deleted pods a": 1}},
			got:       oracle.Effects{Changes: map[string]int{}, Unknown: map[string]int{"deleted pods a": 1}},
			tooLittle: "deleted pods a: 0 times, should be 1"},
	} {
		t.Run(name, func(t *testing.T) {
			did := maps.Clone(c.got.Did)
			tooMuch, tooLittle := oracle.CompareEffects(c.want, c.got, c.mayDiffer)
			require.Equal(t, c.tooMuch, tooMuch)
			require.Equal(t, c.tooLittle, tooLittle)
			require.Equal(t, did, c.got.Did)
		})
	}
}

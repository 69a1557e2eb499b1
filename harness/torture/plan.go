package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// Plan is what goes wrong in one run.
type Plan struct {
	Kind   string           // in a few words, for the table
	Faults []apiproxy.Fault // none: the undisturbed run
}

// String is the plan as flags that replay it.
func (p Plan) String() string {
	var flags []string
	for _, f := range p.Faults {
		flags = append(flags, "--fault "+f.String())
	}
	return strings.Join(flags, " ")
}

// crashes says whether the plan kills the control plane, so that it cannot share one.
func (p Plan) crashes() bool {
	return slices.ContainsFunc(p.Faults, func(f apiproxy.Fault) bool { return f.Crash != "" })
}

// doneLate says whether something is done after the client has given up.
func (p Plan) doneLate() bool {
	return slices.ContainsFunc(p.Faults, func(f apiproxy.Fault) bool { return f.Lost == apiproxy.LostLate })
}

// kind is a kind of fault: what it is called, and what it does to a request.
type kind struct {
	name  string
	fault apiproxy.Fault
}

var (
	// ofAny befall any request.
	ofAny = []kind{
		{"answered 429", apiproxy.Fault{Refuse: 429, RetryAfter: time.Second}},
		{"answered 500", apiproxy.Fault{Refuse: 500}},
		{"answered 503", apiproxy.Fault{Refuse: 503}},
		{"request lost", apiproxy.Fault{Lost: apiproxy.LostRequest}},
		{"connection refused", apiproxy.Fault{Down: time.Second}},
		{"slow", apiproxy.Fault{Delay: 2 * time.Second}},
	}
	// ofWrites befall writes.
	ofWrites = []kind{
		{"answered 403", apiproxy.Fault{Refuse: 403}},
		{"answered 409", apiproxy.Fault{Refuse: 409}},
		{"reply lost", apiproxy.Fault{Lost: apiproxy.LostReply}},
		{"reply lost, 504", apiproxy.Fault{Lost: apiproxy.LostReply, Refuse: 504}},
		{"killed before", apiproxy.Fault{Kill: apiproxy.Before}},
		{"killed after", apiproxy.Fault{Kill: apiproxy.After}},
		{"told to stop", apiproxy.Fault{Stop: apiproxy.Before, Delay: 500 * time.Millisecond}},
		{"control plane killed before", apiproxy.Fault{Crash: apiproxy.Before}},
		{"control plane killed after", apiproxy.Fault{Crash: apiproxy.After}},
	}
	// ofWritesOutside befall writes that are not to the API server. Late is sooner than it can be taken for rest.
	ofWritesOutside = []kind{
		{"answered 412", apiproxy.Fault{Refuse: 412}},
		{"done late", apiproxy.Fault{Lost: apiproxy.LostLate, Delay: 300 * time.Millisecond}},
	}
	// atEvents happen to a watch at an event.
	atEvents = []kind{
		{"watch cut", apiproxy.Fault{Watch: apiproxy.WatchCut}},
		{"watch expired", apiproxy.Fault{Watch: apiproxy.WatchExpired}},
		{"unobserved", apiproxy.Fault{Watch: apiproxy.WatchUnobserved}},
	}
	// ofWatches happen to whole watches.
	ofWatches = []kind{
		{"watch late", apiproxy.Fault{Late: 2 * time.Second}},
		{"no bookmarks", apiproxy.Fault{Watch: apiproxy.WatchNoBookmarks}},
		{"watch answered 410", apiproxy.Fault{Refuse: 410}},
	}
	// forAWhile are for all requests of a kind.
	forAWhile = []kind{
		{"answered 500 for a while", apiproxy.Fault{Refuse: 500, For: 6 * time.Second}},
		{"answered 429 for a while", apiproxy.Fault{Refuse: 429, RetryAfter: time.Second, For: 6 * time.Second}},
	}
)

// aWhileOutside is a right that is missing for some time, as with a quota.
var aWhileOutside = kind{"answered 403 for a while", apiproxy.Fault{Refuse: 403, For: 6 * time.Second}}

// class is the requests that are alike, as far as they can be aimed at.
type class struct{ verb, group, resource, subresource string }

func (c class) aim(k kind, n int) Plan {
	f := k.fault
	f.Verb, f.Group, f.Resource, f.Subresource = c.verb, c.group, c.resource, c.subresource
	f.From, f.To = n, n
	return Plan{Kind: k.name, Faults: []apiproxy.Fault{f}}
}

// Exhaustive returns a plan for each kind of fault and each request, and each event of each watch, that an
// undisturbed run has had. What is not for a resource, such as discovery, is left alone. outside are the groups that
// are not the API server's. Of reads outside that are alike, there are ten at most.
func Exhaustive(undisturbed *history.History, outside ...string) []Plan {
	counts, order := map[class]int{}, []class{}
	watches := map[int64]struct {
		class
		n int
	}{}
	for _, r := range undisturbed.Requests {
		if r.Resource == "" {
			continue
		}
		c := class{r.Verb, r.Group, r.Resource, r.Subresource}
		if counts[c] == 0 {
			order = append(order, c)
		}
		counts[c]++
		if r.Verb == "watch" {
			watches[r.ID] = struct {
				class
				n int
			}{c, counts[c]}
		}
	}
	var plans []Plan
	for _, c := range order {
		isWrite := history.Request{Verb: c.verb, Group: c.group, Resource: c.resource, Subresource: c.subresource}.IsWrite()
		isOutside := slices.Contains(outside, c.group)
		step := 1
		if isOutside && !isWrite { // nobody tells it what is new there, so it asks again and again
			const enough = 10
			step = (counts[c] + enough - 1) / enough
		}
		for n := 1; n <= counts[c]; n += step {
			for _, k := range ofAny {
				plans = append(plans, c.aim(k, n))
			}
			if isWrite {
				for _, k := range ofWrites {
					if !isOutside || k.fault.Crash == "" { // whatever the control plane does
						plans = append(plans, c.aim(k, n))
					}
				}
			}
			if isWrite && isOutside {
				for _, k := range ofWritesOutside {
					plans = append(plans, c.aim(k, n))
				}
			}
			if c.verb == "watch" {
				for _, k := range ofWatches {
					plans = append(plans, c.aim(k, n))
				}
			}
		}
		if isWrite {
			long := forAWhile
			if isOutside {
				long = append(slices.Clip(long), aWhileOutside)
			}
			for _, k := range long {
				plan := c.aim(k, 1)
				plan.Faults[0].To = 0
				plans = append(plans, plan)
			}
		}
	}
	events := map[int64]int{}
	for _, e := range undisturbed.Events {
		w, ok := watches[e.Request]
		if !ok || e.Type == "BOOKMARK" {
			continue
		}
		events[e.Request]++
		for _, k := range atEvents {
			plan := w.aim(k, w.n)
			plan.Faults[0].Event = events[e.Request]
			plans = append(plans, plan)
		}
	}
	return inTurn(plans)
}

// inTurn orders plans so that each kind has its turn early with each kind of request. Of plans that are alike, it
// is not always the first request or event that comes first: at the start, there is little to go wrong.
func inTurn(plans []Plan) []Plan {
	var keys []string
	alike := map[string][]Plan{}
	for _, p := range plans {
		f := p.Faults[0]
		key := strings.Join([]string{p.Kind, f.Verb, f.Group, f.Resource, f.Subresource}, " ")
		if alike[key] == nil {
			keys = append(keys, key)
		}
		alike[key] = append(alike[key], p)
	}
	random := rand.New(rand.NewPCG(1, 0)) // the same order each time
	for _, key := range keys {
		of := alike[key]
		random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	}
	var ordered []Plan
	for turn := 0; len(ordered) < len(plans); turn++ {
		for _, key := range keys {
			if turn < len(alike[key]) {
				ordered = append(ordered, alike[key][turn])
			}
		}
	}
	return ordered
}

// Random returns plans that each put two or three of the others together, drawn from a seed.
func Random(all []Plan, seed uint64, count int) []Plan {
	if len(all) == 0 {
		return nil
	}
	var plans []Plan
	for number := range count {
		plan := Plan{Kind: fmt.Sprintf("seed %d", seed+uint64(number))}
		random := rand.New(rand.NewPCG(seed+uint64(number), 0))
		for range 2 + random.IntN(2) {
			plan.Faults = append(plan.Faults, all[random.IntN(len(all))].Faults...)
		}
		plans = append(plans, plan)
	}
	return plans
}

package torture

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// Plan is what goes wrong in one run.
type Plan struct {
	Kind   string           // a few words, for the table
	Faults []apiproxy.Fault // none for a run without faults
}

// NoFault is the plan of a run without faults.
var NoFault = Plan{Kind: "no fault"}

// drawn begins the Kind of a plan that was drawn from a seed.
const drawn = "seed "

// isDrawn reports whether the plan was drawn from a seed.
func (p Plan) isDrawn() bool { return strings.HasPrefix(p.Kind, drawn) }

// Key tells a plan from the others of a run, and identifies it when the run is resumed. It is the seed alone if the plan
// was drawn from one, because the faults that a seed draws depend on the baseline, which a resumed run learns again.
func (p Plan) Key() string {
	if p.isDrawn() {
		return p.Kind
	}
	return p.Kind + " " + p.String()
}

// String returns the plan as flags that replay it.
func (p Plan) String() string {
	var flags []string
	for _, f := range p.Faults {
		flags = append(flags, "--fault "+f.String())
	}
	return strings.Join(flags, " ")
}

// crashes reports whether the plan kills the control plane, so that its run cannot share one.
func (p Plan) crashes() bool {
	return slices.ContainsFunc(p.Faults, func(f apiproxy.Fault) bool { return f.Crash != "" })
}

// disconnects reports whether the controller cannot connect for some time.
func (p Plan) disconnects() bool {
	return slices.ContainsFunc(p.Faults, func(f apiproxy.Fault) bool { return f.Down != 0 || f.Crash != "" })
}

// doneLate reports whether a request may be carried out after the client has given it up.
func (p Plan) doneLate() bool {
	return slices.ContainsFunc(p.Faults, func(f apiproxy.Fault) bool { return f.Lost == apiproxy.LostLate })
}

// kind is a kind of fault: its name, and what it does to a request.
type kind struct {
	name   string
	effect apiproxy.Effect
}

var (
	// ofAny are for any request.
	ofAny = []kind{
		{"answered 429", apiproxy.Effect{Refuse: 429, RetryAfter: time.Second}},
		{"answered 500", apiproxy.Effect{Refuse: 500}},
		{"answered 503", apiproxy.Effect{Refuse: 503}},
		{"request lost", apiproxy.Effect{Lost: apiproxy.LostRequest}},
		{"connection refused", apiproxy.Effect{Down: time.Second}},
		{"slow", apiproxy.Effect{Delay: 2 * time.Second}},
	}
	// ofWrites are for writes.
	ofWrites = []kind{
		{"answered 403", apiproxy.Effect{Refuse: 403}},
		{"answered 409", apiproxy.Effect{Refuse: 409}},
		{"reply lost", apiproxy.Effect{Lost: apiproxy.LostReply}},
		{"reply lost, 504", apiproxy.Effect{Lost: apiproxy.LostReply, Refuse: 504}},
		{"answered late", apiproxy.Effect{AnswerLate: 3 * time.Second}},
		{"killed before", apiproxy.Effect{Kill: apiproxy.Before}},
		{"killed after", apiproxy.Effect{Kill: apiproxy.After}},
		{"told to stop", apiproxy.Effect{Stop: apiproxy.Before, Delay: 500 * time.Millisecond}},
		{"control plane killed before", apiproxy.Effect{Crash: apiproxy.Before}},
		{"control plane killed after", apiproxy.Effect{Crash: apiproxy.After}},
	}
	// ofWritesOutside are for writes to what is outside of the cluster. What is done late is done before the run could
	// be taken to be at rest.
	ofWritesOutside = []kind{
		{"answered 412", apiproxy.Effect{Refuse: 412}},
		{"done late", apiproxy.Effect{Lost: apiproxy.LostLate, Delay: 300 * time.Millisecond}},
	}
	// ofWritesToMachines are for writes of a program on a machine, which fails, and for those of others to a Node, whose
	// machine fails.
	ofWritesToMachines = []kind{
		{"machine rebooted before", apiproxy.Effect{Reboot: apiproxy.Before}},
		{"machine rebooted after", apiproxy.Effect{Reboot: apiproxy.After}},
		{"power cut before", apiproxy.Effect{PowerCut: apiproxy.Before}},
		{"power cut after", apiproxy.Effect{PowerCut: apiproxy.After}},
	}
	// atEvents are for one event of a watch.
	atEvents = []kind{
		{"watch cut", apiproxy.Effect{Watch: apiproxy.WatchCut}},
		{"watch expired", apiproxy.Effect{Watch: apiproxy.WatchExpired}},
		{"unobserved", apiproxy.Effect{Watch: apiproxy.WatchUnobserved}},
	}
	// ofWatches are for a whole watch.
	ofWatches = []kind{
		{"watch late", apiproxy.Effect{Late: 2 * time.Second}},
		{"watch answered 410", apiproxy.Effect{Refuse: 410}},
	}
	// noBookmarks is for a whole watch of a class that gets any: the API server sends one each minute.
	noBookmarks = kind{"no bookmarks", apiproxy.Effect{Watch: apiproxy.WatchNoBookmarks}}
	// forAWhile are for all requests of a class.
	forAWhile = []kind{
		{"answered 500 for a while", apiproxy.Effect{Refuse: 500, For: 6 * time.Second}},
		{"answered 429 for a while", apiproxy.Effect{Refuse: 429, RetryAfter: time.Second, For: 6 * time.Second}},
	}
)

// These take so long that each is for a few requests only.
var (
	// noAnswer is for one request of each class.
	noAnswer = kind{"no answer", apiproxy.Effect{Hang: 20 * time.Second}}
	// frozen are for one write of each class.
	frozen = []kind{
		{"frozen before", apiproxy.Effect{Freeze: apiproxy.Before}},
		{"frozen after", apiproxy.Effect{Freeze: apiproxy.After}},
	}
	// frozenAlone is how long a controller is frozen that has no Lease, and so no successor.
	frozenAlone = 5 * time.Second
	// longOutage is for a first list or watch and for the first write: a client that gives up after a number of attempts does so.
	longOutage = kind{"long outage", apiproxy.Effect{Down: 45 * time.Second}}
	// leaseLost is for the renewals of Leases. It outlasts a LeaseDuration of 15 seconds.
	leaseLost = kind{"lease lost", apiproxy.Effect{Refuse: 500, For: 20 * time.Second}}
	// longPowerCuts are for one write of each class that reaches a machine. They last longer than the 50 seconds after
	// which the node lifecycle controller takes a Node without heartbeats for unreachable.
	longPowerCuts = []kind{
		{"long power cut before", apiproxy.Effect{PowerCut: apiproxy.Before, OffFor: time.Minute}},
		{"long power cut after", apiproxy.Effect{PowerCut: apiproxy.After, OffFor: time.Minute}},
	}
	// oneCacheBehind is for all watches of one resource, if the controller watches another one too.
	oneCacheBehind = kind{"one cache behind", apiproxy.Effect{Late: 5 * time.Second}}
)

const leaseGroup = "coordination.k8s.io"

// aWhileOutside is for all writes of a class to what is outside of the cluster: a right that is missing for some time, as
// when a quota is used up.
var aWhileOutside = kind{"answered 403 for a while", apiproxy.Effect{Refuse: 403, For: 6 * time.Second}}

// long returns the plans that take so long that there are only a few of each kind. counts has how many requests of each
// class there are, and order has the classes by their first request. reachesMachine is as in exhaustive.
func long(counts map[class]int, order []class, reachesMachine func(class) bool, outside []string) (plans []Plan) {
	for _, c := range order {
		middle := (counts[c] + 1) / 2 // at the first requests, there is little that can go wrong
		plans = append(plans, c.aim(noAnswer, middle))
		if !c.isWrite() {
			continue
		}
		for _, k := range frozen {
			if !slices.ContainsFunc(order, func(other class) bool { return other.program == c.program && other.renewsLease() }) {
				k.effect.FreezeFor = frozenAlone
			}
			plans = append(plans, c.aim(k, middle))
		}
		if c.renewsLease() {
			plans = append(plans, c.aimAtAll(leaseLost))
		}
		if reachesMachine(c) && !slices.Contains(outside, c.group) {
			for _, k := range longPowerCuts {
				plans = append(plans, c.aim(k, middle))
			}
		}
	}
	inside := slices.DeleteFunc(slices.Clone(order), func(c class) bool { return slices.Contains(outside, c.group) })
	if at := slices.IndexFunc(inside, class.isWrite); at >= 0 {
		plans = append(plans, inside[at].aim(longOutage, 1))
	}
	reads := slices.DeleteFunc(inside, func(c class) bool { return c.verb != "list" && c.verb != "watch" })
	if len(reads) > 0 { // not the first of them: which one is first is up to chance if informers start together
		plans = append(plans, slices.MinFunc(reads, class.compare).aim(longOutage, 1))
	}
	for _, c := range order {
		isOther := func(other class) bool { return other != c && other.verb == "watch" && other.program == c.program }
		if c.verb == "watch" && slices.ContainsFunc(order, isOther) {
			plans = append(plans, c.aimAtAll(oneCacheBehind))
		}
	}
	return plans
}

// usualLease is how long a leader's Lease lasts in client-go's examples and most controllers. frozen and leaseLost outlast it.
const usualLease = 15 * time.Second

// outlast makes the faults by which a leader is to lose its Lease longer than the Lease lasts, or leaves them out if a controller
// may not be held up for so long.
func outlast(plans []Plan, lease time.Duration) []Plan {
	if lease <= usualLease {
		return plans
	}
	long := lease + apiproxy.DefaultFreeze - usualLease
	var all []Plan
	for _, plan := range plans {
		effect := &plan.Faults[0].Effect
		losesLease := true
		switch {
		case plan.Kind == leaseLost.name:
			effect.For = long
		case effect.Freeze != "" && effect.FreezeFor == 0:
			effect.FreezeFor = long
		default:
			losesLease = false
		}
		if !losesLease || long < maxHeldUp {
			all = append(all, plan)
		}
	}
	return all
}

// class is requests between which faults do not distinguish but by number. program is as in [apiproxy.Match].
type class struct{ program, verb, group, resource, subresource string }

func classOf(r history.Request) class {
	return class{r.Program, r.Verb, r.Group, r.Resource, r.Subresource}
}

// aim returns the plan of a fault at the n-th request of the class, from 1.
func (c class) aim(k kind, n int) Plan {
	match := apiproxy.Match{Program: c.program, Verb: c.verb, Group: c.group, Resource: c.resource, Subresource: c.subresource, From: n, To: n}
	return Plan{Kind: k.name, Faults: []apiproxy.Fault{{Match: match, Effect: k.effect}}}
}

// aimAtAll returns the plan of a fault at all requests of the class.
func (c class) aimAtAll(k kind) Plan {
	plan := c.aim(k, 1)
	plan.Faults[0].From, plan.Faults[0].To = 0, 0
	return plan
}

// compare orders classes by their fields.
func (c class) compare(other class) int {
	return cmp.Or(strings.Compare(c.program, other.program), strings.Compare(c.verb, other.verb), strings.Compare(c.group, other.group),
		strings.Compare(c.resource, other.resource), strings.Compare(c.subresource, other.subresource))
}

func (c class) isWrite() bool {
	return history.Request{Verb: c.verb, Group: c.group, Resource: c.resource, Subresource: c.subresource}.IsWrite()
}

// renewsLease reports whether a leader renews its Lease with requests of the class.
func (c class) renewsLease() bool {
	return c.group == leaseGroup && c.resource == "leases" && (c.verb == "update" || c.verb == "patch")
}

// Exhaustive returns a plan for each kind of fault and each request, and each event of each watch, of a run without
// faults. Of the kinds that take long, there are fewer, and there is none where a fault could change nothing: for a watch
// without bookmarks, or an event that no other one of its object follows soon. Requests that are not for a resource, such as discovery, are left
// alone. A fault is for the program that the request names. outside are the groups of what is outside of the cluster. Of
// each class of reads outside, ten at most are chosen.
func Exhaustive(baseline *history.History, outside ...string) []Plan {
	return exhaustive(baseline, func(class) bool { return false }, outside...)
}

// reachesMachine reports whether a machine can fail at a request of the class.
func (s *Scenario) reachesMachine(c class) bool {
	isOfNode := c.group == "" && c.resource == "nodes" && c.verb != "create"
	return s.isCluster() && s.hasMachines() && c.isWrite() && (isOfNode || s.isOnMachine(c.program))
}

// exhaustive is Exhaustive for a scenario in which machines can fail at requests of the classes for which reachesMachine
// is true.
func exhaustive(baseline *history.History, reachesMachine func(class) bool, outside ...string) []Plan {
	counts, order := map[class]int{}, []class{}
	watches := map[int64]struct {
		class
		n int
	}{}
	bookmarks := withBookmarks(baseline)
	for _, r := range baseline.Requests {
		if r.Resource == "" {
			continue
		}
		c := classOf(r)
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
		isWrite := c.isWrite()
		isOutside := slices.Contains(outside, c.group)
		step := 1
		if isOutside && !isWrite { // there are no watches, so the controller polls
			const enough = 10
			step = (counts[c] + enough - 1) / enough
		}
		for n := 1; n <= counts[c]; n += step {
			for _, k := range ofAny {
				plans = append(plans, c.aim(k, n))
			}
			if isWrite {
				for _, k := range ofWrites {
					if !isOutside || k.effect.Crash == "" { // the control plane has no part in it
						plans = append(plans, c.aim(k, n))
					}
				}
			}
			if reachesMachine(c) && !isOutside {
				for _, k := range ofWritesToMachines {
					plans = append(plans, c.aim(k, n))
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
				if bookmarks[c] {
					plans = append(plans, c.aim(noBookmarks, n))
				}
			}
		}
		if isWrite {
			kinds := forAWhile
			if isOutside {
				kinds = append(slices.Clip(kinds), aWhileOutside)
			}
			for _, k := range kinds {
				plan := c.aim(k, 1)
				plan.Faults[0].To = 0
				plans = append(plans, plan)
			}
		}
	}
	plans = append(plans, long(counts, order, reachesMachine, outside)...)
	events := map[int64]int{}
	for i, e := range baseline.Events {
		w, ok := watches[e.Request]
		if !ok || e.Type == "BOOKMARK" {
			continue
		}
		events[e.Request]++
		for _, k := range atEvents {
			if k.effect.Watch == apiproxy.WatchUnobserved && !isSuperseded(e, baseline.Events[i+1:]) {
				continue
			}
			plan := w.aim(k, w.n)
			plan.Faults[0].Event = events[e.Request]
			plans = append(plans, plan)
		}
	}
	for i := range plans {
		only(&plans[i].Faults[0].Match, order)
	}
	return inTurn(plans)
}

// isSuperseded reports whether one of the later events is of the same object in the same watch, and so soon that the proxy can
// leave out this one.
func isSuperseded(e history.Event, later []history.Event) bool {
	return slices.ContainsFunc(later, func(l history.Event) bool {
		return l.Request == e.Request && l.Type != "BOOKMARK" && l.Namespace == e.Namespace && l.Name == e.Name &&
			l.Time.Sub(e.Time) < apiproxy.UnobservedLimit
	})
}

// withBookmarks returns the classes of the watches that got bookmarks, other than the one that ends the initial events.
func withBookmarks(baseline *history.History) map[class]bool {
	counts := map[int64]int{}
	for _, e := range baseline.Events {
		if e.Type == "BOOKMARK" {
			counts[e.Request]++
		}
	}
	classes := map[class]bool{}
	for _, r := range baseline.Requests {
		if strings.Contains(r.URI, "sendInitialEvents=true") {
			counts[r.ID]--
		}
		if r.Verb == "watch" && counts[r.ID] > 0 {
			classes[classOf(r)] = true
		}
	}
	return classes
}

// only keeps the faults of a class from the requests of other classes: those for its subresources, as the second patch of a
// resource may be the fifth one if those of its status are counted; and, in the core group, those for a resource of the
// same name in another group.
func only(m *apiproxy.Match, classes []class) {
	others := slices.DeleteFunc(slices.Clone(classes), func(c class) bool {
		return c.program != m.Program || c.verb != m.Verb || c.resource != m.Resource
	})
	isSubresource := func(c class) bool { return c.subresource != "" && c.group == m.Group }
	if m.Subresource == "" && slices.ContainsFunc(others, isSubresource) {
		m.Subresource = apiproxy.NoSubresource
	}
	if m.Group == "" && slices.ContainsFunc(others, func(c class) bool { return c.group != "" }) {
		m.Group = apiproxy.CoreGroup
	}
}

// inTurn orders plans so that each kind of fault comes early with each class of requests. Among plans of the same kind and
// class the order is random, but always the same: at the first requests, there is little that can go wrong. It does not depend
// on the order of the classes, which differs between runs of the same controller.
func inTurn(plans []Plan) []Plan {
	var keys []string
	alike := map[string][]Plan{}
	for _, p := range plans {
		f := p.Faults[0]
		key := strings.Join([]string{p.Kind, f.Program, f.Verb, f.Group, f.Resource, f.Subresource}, " ")
		if alike[key] == nil {
			keys = append(keys, key)
		}
		alike[key] = append(alike[key], p)
	}
	for _, key := range keys {
		hash := fnv.New64a()
		hash.Write([]byte(key))
		random := rand.New(rand.NewPCG(hash.Sum64(), 0))
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

// Random returns plans that each combine two or three of the given ones, drawn at random. A plan follows from its seed and
// the given plans, in whatever order these are. They differ if the run without faults did, so a plan is replayed by its
// faults, not by its seed.
func Random(all []Plan, seed uint64, count int) []Plan {
	if len(all) == 0 {
		return nil
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b Plan) int { return strings.Compare(a.Key(), b.Key()) })
	var plans []Plan
	for number := range count {
		plan := Plan{Kind: fmt.Sprint(drawn, seed+uint64(number))}
		random := rand.New(rand.NewPCG(seed+uint64(number), 0))
		for range 2 + random.IntN(2) {
			plan.Faults = append(plan.Faults, all[random.IntN(len(all))].Faults...)
		}
		plans = append(plans, plan)
	}
	return plans
}

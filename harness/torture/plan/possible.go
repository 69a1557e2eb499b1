package plan

import (
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// World is what plans are made for: what a run without faults came to, and which of it matters.
type World struct {
	// Baseline is the recording of a run without faults. The program of a request is the one at which a fault is aimed.
	Baseline *history.History
	// Resources are those that the controller's job is about, as plurals; nil if that is not known.
	Resources []string
	// Outside are the groups of what is outside of the cluster.
	Outside []string
	// ReachesMachine reports whether a machine can fail at a request of the class; nil if none can.
	ReachesMachine func(Class) bool
	// Lease is how long the controller's Lease lasts; 0 if it has none, or if that is not known. A controller cannot be held up for longer
	// than MostHeldUp; 0 if that does not matter.
	Lease, MostHeldUp time.Duration
	// Steps are when the steps of the run without faults began, and when the last one ended; nil if that is not known.
	Steps []time.Time
}

// Possible returns a plan for each kind of fault and each request, and each event of each watch, of a run without faults, the
// most telling first; see order.go. Of the kinds that take long, there are fewer, and there is none where a fault could change
// nothing: for a watch without bookmarks, or an event that no other one of its object follows soon. Requests that are not for a
// resource, such as discovery, are left alone. A fault is for the program that the request names. Of reads outside, and of requests for a
// Lease, some are chosen.
func Possible(w World) []Plan {
	baseline, outside := w.Baseline, w.Outside
	reachesMachine := w.ReachesMachine
	if reachesMachine == nil {
		reachesMachine = func(Class) bool { return false }
	}
	counts, order := map[Class]int{}, []Class{}
	watches := map[int64]struct {
		Class
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
				Class
				n int
			}{c, counts[c]}
		}
	}
	var plans []Plan
	for _, c := range order {
		isWrite := c.IsWrite()
		isOutside := slices.Contains(outside, c.Group)
		step := 1
		if most := w.most(c); most > 0 {
			step = (counts[c] + most - 1) / most
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
			if c.Verb == "watch" {
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
	isOfDeletion := map[int]bool{} // by plan
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
			if e.Type == "DELETED" {
				isOfDeletion[len(plans)-1] = true
			}
		}
	}
	telling := map[string]bool{}
	for i := range plans {
		only(&plans[i].Faults[0].Match, order)
		telling[plans[i].Key()] = isOfDeletion[i]
	}
	return w.inOrder(outlast(plans, w.Lease, w.MostHeldUp), telling)
}

// most returns at how many requests of a class faults are aimed at most, spread over the run; 0 for all. Some come again and again by the
// clock, and one is like another.
func (w World) most(c Class) int {
	switch {
	case slices.Contains(w.Outside, c.Group) && !c.IsWrite(): // there are no watches, so the controller polls
		return 10
	case c.Group == leaseGroup && c.Resource == "leases" && !slices.Contains(w.Resources, "leases"):
		return 5
	}
	return 0
}

// isSuperseded reports whether one of the later events is of the same object in the same watch, and so soon that the proxy can
// leave out this one.
func isSuperseded(e history.Event, later []history.Event) bool {
	return slices.ContainsFunc(later, func(l history.Event) bool {
		return l.Request == e.Request && l.Type != "BOOKMARK" && l.Namespace == e.Namespace && l.Name == e.Name &&
			l.Time.Sub(e.Time) < apiproxy.UnobservedLimit/2 // on a busy machine, it takes longer
	})
}

// withBookmarks returns the classes of the watches that got bookmarks, other than the one that ends the initial events.
func withBookmarks(baseline *history.History) map[Class]bool {
	counts := map[int64]int{}
	for _, e := range baseline.Events {
		if e.Type == "BOOKMARK" {
			counts[e.Request]++
		}
	}
	classes := map[Class]bool{}
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
func only(m *apiproxy.Match, classes []Class) {
	others := slices.DeleteFunc(slices.Clone(classes), func(c Class) bool {
		return c.Program != m.Program || c.Verb != m.Verb || c.Resource != m.Resource
	})
	isSubresource := func(c Class) bool { return c.Subresource != "" && c.Group == m.Group }
	if m.Subresource == "" && slices.ContainsFunc(others, isSubresource) {
		m.Subresource = apiproxy.NoSubresource
	}
	if m.Group == "" && slices.ContainsFunc(others, func(c Class) bool { return c.Group != "" }) {
		m.Group = apiproxy.CoreGroup
	}
}

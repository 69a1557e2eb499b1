package plan

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/apiproxy"
)

// What comes first matters if not all plans are run. By experience, with bugs that are known, most are shown by a write of the job that
// fails or whose answer is lost; then by a list that fails, and could be taken for an empty one, and by a cache that is behind; then by a
// restart between two writes, and by a watch that misses a deletion. At one request, many kinds of fault look the same to the controller, so one of them comes early, another one at each request, and the others
// come late.

// family is kinds of fault that look alike to a controller.
type family string

const (
	fails      family = "fails"       // the request is not done, and the controller is told so, or may think so
	replyLost  family = "reply lost"  // it is done, and the controller is not told so
	late       family = "late"        // it is done, or its answer comes, later
	aWhile     family = "for a while" // requests fail for some time
	crashes    family = "crash"       // the control plane restarts
	lossOfMany family = "watch ends"  // a watch ends at an event
)

// families has the kinds that have others like them.
var families = map[string]family{
	"answered 429": fails, "answered 500": fails, "answered 503": fails, "request lost": fails, "connection refused": fails,
	"reply lost": replyLost, "reply lost, 504": replyLost,
	"slow": late, "answered late": late,
	"answered 500 for a while": aWhile, "answered 429 for a while": aWhile,
	"control plane killed before": crashes, "control plane killed after": crashes,
	"watch cut": lossOfMany, "watch expired": lossOfMany,
}

// familyOf returns what a plan's kind looks like: itself, if there is nothing like it. A read that is slow is one that fails, for a controller
// that has to do without it for as long.
func familyOf(p Plan) family {
	if p.Kind == "slow" && !classOfFault(p.Faults[0]).IsWrite() {
		return fails
	}
	return cmp.Or(families[p.Kind], family(p.Kind))
}

// classOfFault returns the class of the requests at which a fault is aimed.
func classOfFault(f apiproxy.Fault) Class {
	c := Class{f.Program, f.Verb, f.Group, f.Resource, f.Subresource}
	if c.Group == apiproxy.CoreGroup {
		c.Group = ""
	}
	if c.Subresource == apiproxy.NoSubresource {
		c.Subresource = ""
	}
	return c
}

// restarts are the kinds after which a program begins anew.
var restarts = map[string]bool{"killed before": true, "killed after": true, "told to stop": true}

// tier says how early plans come that are each the first of their family and class: 0 is the earliest.
func (w World) tier(p Plan) int {
	c := classOfFault(p.Faults[0])
	isOfJob := w.Resources == nil || slices.Contains(w.Resources, c.Resource) || slices.Contains(w.Outside, c.Group)
	isIncidental := c.Resource == "leases" || c.Resource == "events"
	switch {
	case isIncidental && !slices.Contains(w.Resources, c.Resource):
		return 4
	case c.IsWrite() && isOfJob && restarts[p.Kind]:
		return 2
	case c.IsWrite() && isOfJob && takesLong(p):
		return 3
	case c.IsWrite() && isOfJob:
		return 0
	case takesLong(p):
		return 3
	case (c.Verb == "list" || c.Verb == "watch" || c.Verb == "get") && familyOf(p) == fails, c.Verb == "watch" && isOfJob && p.Faults[0].Late != 0:
		return 1
	case c.Verb == "watch" && isOfJob && p.Faults[0].Event != 0:
		return 2
	}
	return 3
}

// takesLong reports whether a plan takes much longer than others.
func takesLong(p Plan) bool {
	const long = 10 * time.Second
	e := p.Faults[0].Effect
	return e.Down >= long || e.For >= long || e.Hang != 0 || e.Freeze != "" || e.OffFor != 0 || e.Crash != ""
}

// queue is plans that are alike: of one family, for one class of requests.
type queue struct {
	key   string
	of    family
	tier  int
	plans []Plan
	late  bool // each is like one in another queue
}

// inOrder orders plans. In turn, each queue gives one, those of a lower tier first; those of higher tiers, and those that are like others,
// wait for some turns of the others. Within a queue the order is random, but always the same: at the first requests, there is little that can
// go wrong; but those that are telling, by their keys, come first. It does not depend on the order of the classes, which differs between runs of the same controller.
func (w World) inOrder(plans []Plan, telling map[string]bool) []Plan {
	alike := map[string]map[string][]Plan{} // by key, and then by the request
	var keys []string
	for _, p := range plans {
		c := classOfFault(p.Faults[0])
		key := strings.Join([]string{string(familyOf(p)), c.Program, c.Verb, c.Group, c.Resource, c.Subresource}, " ")
		if alike[key] == nil {
			keys, alike[key] = append(keys, key), map[string][]Plan{}
		}
		f := p.Faults[0]
		f.Effect = apiproxy.Effect{Event: f.Event}
		alike[key][f.String()] = append(alike[key][f.String()], p)
	}
	var queues []queue
	for _, key := range keys {
		first, others := rotate(key, alike[key])
		slices.SortStableFunc(first, func(a, b Plan) int { return cmp.Compare(rank(telling[a.Key()]), rank(telling[b.Key()])) })
		queues = append(queues, queue{key, familyOf(first[0]), w.tier(first[0]), first, false})
		if len(others) > 0 {
			queues = append(queues, queue{key, familyOf(others[0]), w.tier(others[0]), others, true})
		}
	}
	slices.SortStableFunc(queues, func(a, b queue) int { // each write fails once before one fails in another way
		return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(rank(a.of == fails), rank(b.of == fails)))
	})
	var ordered []Plan
	for turn := 0; len(ordered) < len(plans); turn++ {
		for i := range queues {
			q := &queues[i]
			if len(q.plans) > 0 && q.isDue(turn) {
				ordered = append(ordered, q.plans[0])
				q.plans = q.plans[1:]
			}
		}
	}
	return ordered
}

// rank is 0 for what comes first, and 1 for the rest.
func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// isDue reports whether a queue gives a plan in a turn.
func (q *queue) isDue(turn int) bool {
	every := []int{1, 1, 1, 2, 4}[q.tier]
	if q.late {
		every *= 8
	}
	return turn%every == every-1
}

// rotate returns plans of one family and class in a random order that follows from the key: first one for each request, with another kind
// each time, and then the others. They are given by the request.
func rotate(key string, alike map[string][]Plan) (first, others []Plan) {
	hash := fnv.New64a()
	hash.Write([]byte(key))
	random := rand.New(rand.NewPCG(hash.Sum64(), 0))
	var requests []string
	for request := range alike {
		requests = append(requests, request)
	}
	slices.Sort(requests)
	random.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	begin := random.IntN(8)
	for i, request := range requests {
		of := alike[request]
		slices.SortFunc(of, func(a, b Plan) int { return strings.Compare(a.Kind, b.Kind) })
		chosen := (begin + i) % len(of)
		first = append(first, of[chosen])
		others = append(others, slices.Delete(slices.Clone(of), chosen, chosen+1)...)
	}
	random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return first, others
}

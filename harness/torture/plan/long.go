package plan

import (
	"slices"
	"time"

	"example.com/controllers/harness/apiproxy"
)

// long returns the plans that take so long that there are only a few of each kind. counts has how many requests of each
// class there are, and order has the classes by their first request. reachesMachine is as in World.
func long(counts map[Class]int, order []Class, reachesMachine func(Class) bool, outside []string) (plans []Plan) {
	for _, c := range order {
		middle := (counts[c] + 1) / 2 // at the first requests, there is little that can go wrong
		plans = append(plans, c.aim(noAnswer, middle))
		if !c.IsWrite() {
			continue
		}
		for _, k := range frozen {
			if !slices.ContainsFunc(order, func(other Class) bool { return other.Program == c.Program && other.renewsLease() }) {
				k.effect.FreezeFor = frozenAlone
			}
			plans = append(plans, c.aim(k, middle))
		}
		if c.renewsLease() {
			plans = append(plans, c.aimAtAll(leaseLost))
		}
		if reachesMachine(c) && !slices.Contains(outside, c.Group) {
			for _, k := range longPowerCuts {
				plans = append(plans, c.aim(k, middle))
			}
		}
	}
	inside := slices.DeleteFunc(slices.Clone(order), func(c Class) bool { return slices.Contains(outside, c.Group) })
	if at := slices.IndexFunc(inside, Class.IsWrite); at >= 0 {
		plans = append(plans, inside[at].aim(longOutage, 1))
	}
	reads := slices.DeleteFunc(inside, func(c Class) bool { return c.Verb != "list" && c.Verb != "watch" })
	if len(reads) > 0 { // not the first of them: which one is first is up to chance if informers start together
		plans = append(plans, slices.MinFunc(reads, Class.compare).aim(longOutage, 1))
	}
	for _, c := range order {
		isOther := func(other Class) bool { return other != c && other.Verb == "watch" && other.Program == c.Program }
		if c.Verb == "watch" && slices.ContainsFunc(order, isOther) {
			plans = append(plans, c.aimAtAll(oneCacheBehind))
		}
	}
	return plans
}

// UsualLease is how long a leader's Lease lasts in client-go's examples and most controllers. frozen and leaseLost outlast it.
const UsualLease = 15 * time.Second

// outlast makes the faults by which a leader is to lose its Lease longer than the Lease lasts, or leaves them out if a controller
// may not be held up for so long.
func outlast(plans []Plan, lease, most time.Duration) []Plan {
	if lease <= UsualLease {
		return plans
	}
	long := lease + apiproxy.DefaultFreeze - UsualLease
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
		if !losesLease || most == 0 || long < most {
			all = append(all, plan)
		}
	}
	return all
}

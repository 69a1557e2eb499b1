package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

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

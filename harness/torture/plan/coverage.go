package plan

import (
	"cmp"
	"slices"
	"strings"
)

// Broken says how many of the writes of a kind, or the lists and watches of one, were broken: at how many of them a fault was injected.
type Broken struct {
	What   string // such as "patch deployments.apps/status"
	Writes int    // of the run without faults; or reads
	Broken int
	IsRead bool // it is a list or a watch
}

// Coverage returns, for each kind of write, list and watch that the job is about, how many of them these plans have broken, which were all run
// with their faults. Of a fault at many requests, only the first is known to have met it. Leases and Events are left out, unless the job is
// about them.
func (w World) Coverage(plans []Plan) (all []Broken) {
	type kindOfWrite struct {
		writes int
		broken map[int]bool
	}
	of := map[Class]*kindOfWrite{}
	for _, r := range w.Baseline.Requests {
		c := classOf(r)
		isIncidental := (c.Resource == "leases" || c.Resource == "events") && !slices.Contains(w.Resources, c.Resource)
		if c.Resource == "" || !c.IsWrite() && c.Verb != "list" && c.Verb != "watch" || isIncidental {
			continue
		}
		if of[c] == nil {
			of[c] = &kindOfWrite{broken: map[int]bool{}}
		}
		of[c].writes++
	}
	for _, p := range plans {
		for _, f := range p.Faults {
			k := of[classOfFault(f)]
			if k == nil {
				continue
			}
			if n := max(f.From, 1); n <= k.writes {
				k.broken[n] = true
			}
		}
	}
	kinds := map[string]Broken{} // the same write by several programs is one kind
	for c, k := range of {
		what := c.Verb + " " + c.Resource
		if c.Group != "" {
			what += "." + c.Group
		}
		if c.Subresource != "" {
			what += "/" + c.Subresource
		}
		b := kinds[what]
		kinds[what] = Broken{what, b.Writes + k.writes, b.Broken + len(k.broken), !c.IsWrite()}
	}
	for _, b := range kinds {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b Broken) int { return cmp.Or(strings.Compare(a.What, b.What)) })
	return all
}

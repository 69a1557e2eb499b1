// Package plan says what is to go wrong in the runs of a controller: a [Plan] for each fault that a run without faults leaves room for, in
// the order in which they tell most.
package plan

import (
	"slices"
	"strings"

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

// IsDrawn reports whether the plan was drawn from a seed.
func (p Plan) IsDrawn() bool { return strings.HasPrefix(p.Kind, drawn) }

// Key tells a plan from the others of a run, and identifies it when the run is resumed. It is the seed alone if the plan
// was drawn from one, because the faults that a seed draws depend on the baseline, which a resumed run learns again.
func (p Plan) Key() string {
	if p.IsDrawn() {
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

// Crashes reports whether the plan kills the control plane, so that its run cannot share one.
func (p Plan) Crashes() bool {
	return slices.ContainsFunc(p.Faults, func(f apiproxy.Fault) bool { return f.Crash != "" })
}

// Disconnects reports whether the controller cannot connect for some time.
func (p Plan) Disconnects() bool {
	return slices.ContainsFunc(p.Faults, func(f apiproxy.Fault) bool { return f.Down != 0 || f.Crash != "" })
}

// DoneLate reports whether a request may be carried out after the client has given it up.
func (p Plan) DoneLate() bool {
	return slices.ContainsFunc(p.Faults, func(f apiproxy.Fault) bool { return f.Lost == apiproxy.LostLate })
}

// IsMet reports whether any fault of the plan was injected in a run that was recorded. A plan without faults is always met.
func (p Plan) IsMet(h *history.History) bool {
	return len(p.Faults) == 0 || slices.ContainsFunc(h.Requests, history.Request.MetFault)
}

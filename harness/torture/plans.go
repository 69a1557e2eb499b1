package torture

import (
	"example.com/controllers/harness/torture/plan"
)

// Plan is what goes wrong in one run; see package plan.
type Plan = plan.Plan

// NoFault is the plan of a run without faults.
var NoFault = plan.NoFault

// reachesMachine reports whether a machine can fail at a request of the class.
func (s *Scenario) reachesMachine(c plan.Class) bool {
	isOfNode := c.Group == "" && c.Resource == "nodes" && c.Verb != "create"
	return s.isCluster() && s.hasMachines() && c.IsWrite() && (isOfNode || s.isOnMachine(c.Program))
}

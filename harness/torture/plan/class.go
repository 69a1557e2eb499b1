package plan

import (
	"cmp"
	"strings"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// leaseGroup is the group of Leases.
const leaseGroup = "coordination.k8s.io"

// Class is requests between which faults do not distinguish but by number. Program is as in [apiproxy.Match].
type Class struct{ Program, Verb, Group, Resource, Subresource string }

func classOf(r history.Request) Class {
	return Class{r.Program, r.Verb, r.Group, r.Resource, r.Subresource}
}

// aim returns the plan of a fault at the n-th request of the class, from 1.
func (c Class) aim(k kind, n int) Plan {
	match := apiproxy.Match{Program: c.Program, Verb: c.Verb, Group: c.Group, Resource: c.Resource, Subresource: c.Subresource, From: n, To: n}
	return Plan{Kind: k.name, Faults: []apiproxy.Fault{{Match: match, Effect: k.effect}}}
}

// aimAtAll returns the plan of a fault at all requests of the class.
func (c Class) aimAtAll(k kind) Plan {
	plan := c.aim(k, 1)
	plan.Faults[0].From, plan.Faults[0].To = 0, 0
	return plan
}

// compare orders classes by their fields.
func (c Class) compare(other Class) int {
	return cmp.Or(strings.Compare(c.Program, other.Program), strings.Compare(c.Verb, other.Verb), strings.Compare(c.Group, other.Group),
		strings.Compare(c.Resource, other.Resource), strings.Compare(c.Subresource, other.Subresource))
}

// IsWrite reports whether its requests are writes.
func (c Class) IsWrite() bool {
	return history.Request{Verb: c.Verb, Group: c.Group, Resource: c.Resource, Subresource: c.Subresource}.IsWrite()
}

// RenewsLease reports whether a leader renews its Lease with such a request.
func RenewsLease(r history.Request) bool { return classOf(r).renewsLease() }

// renewsLease reports whether a leader renews its Lease with requests of the class.
func (c Class) renewsLease() bool {
	return c.Group == leaseGroup && c.Resource == "leases" && (c.Verb == "update" || c.Verb == "patch")
}

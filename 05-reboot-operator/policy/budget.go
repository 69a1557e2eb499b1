package policy

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/controllers/reboot/protocol"
)

// budget counts the unavailable Nodes.
type budget struct {
	policy      Policy
	all         count            // of all domains together
	domains     map[domain]count // by the topology label
	unavailable map[string]bool  // by the name of the Node
	resting     map[string]bool  // by the name of the Node: keeps its slot after its reboot
	// rested is when the next Node gives back the slot that it has kept after its reboot; zero if none keeps one.
	rested time.Time
}

// count holds numbers of Nodes, of the cluster or of one domain.
type count struct {
	nodes       int
	unavailable int // not ready, admitted, or both
	admitted    int // at most unavailable
}

// domain is what the Nodes of a topology domain have in common: the label's value, which may be empty, or that they lack it.
type domain struct {
	value string
	has   bool
}

func domainOf(node *corev1.Node, key string) domain {
	value, has := node.Labels[key]
	return domain{value, has}
}

// in says which Nodes a domain is about, in words.
func (d domain) in(key string) string {
	switch {
	case !d.has:
		return "without the label " + key
	case d.value == "":
		return fmt.Sprintf("with an empty label %s", key)
	}
	return fmt.Sprintf("with %s=%s", key, d.value)
}

// InDomain says with which Nodes a Node shares the limit of its domain, in words.
func (p Policy) InDomain(node *corev1.Node) string {
	return domainOf(node, p.TopologyKey).in(p.TopologyKey)
}

// SameDomain reports whether two Nodes share the limit of a domain.
func (p Policy) SameDomain(a, b *corev1.Node) bool {
	return domainOf(a, p.TopologyKey) == domainOf(b, p.TopologyKey)
}

// RestsUntil returns when a Node gives back the slot that it keeps after its reboot; the zero time if it keeps none. The time of
// the reboot is by the machine's clock, which may be ahead, but not by more than the pause itself.
func (p Policy) RestsUntil(node *corev1.Node, now time.Time) time.Time {
	rebooted := protocol.TimeOf(node, protocol.RebootedAnnotation)
	until := rebooted.Add(p.PauseAfterReboot)
	if rebooted.IsZero() || !now.Before(until) || rebooted.Sub(now) > p.PauseAfterReboot {
		return time.Time{}
	}
	return until
}

// newBudget counts the selected Nodes, and those that hold a slot although they are not selected any more. The Nodes that
// another controller has admitted count if they are selected.
func newBudget(state State, policy Policy) *budget {
	b := &budget{policy: policy, domains: map[domain]count{}, unavailable: map[string]bool{}, resting: map[string]bool{}}
	for _, node := range state.Nodes {
		selected := policy.Selector.Matches(labels.Set(node.Labels))
		admitted := state.Slots[node.Name] || protocol.PhaseOf(node).HoldsSlot() && (selected || protocol.MayBelongTo(node, state.Ledger))
		if !admitted && !selected {
			continue
		}
		if until := policy.RestsUntil(node, state.Now); !until.IsZero() {
			admitted, b.resting[node.Name] = true, true
			if b.rested.IsZero() || until.Before(b.rested) {
				b.rested = until
			}
		}
		var c count
		c.nodes = 1
		if admitted {
			c.admitted = 1
		}
		if admitted || !protocol.IsReady(node) {
			c.unavailable = 1
			b.unavailable[node.Name] = true
		}
		b.add(node, c)
	}
	// A Node in the ledger that is not in the cache yet holds a slot as well. As its domain is not known, it counts in each.
	unknown := len(state.Slots)
	for _, node := range state.Nodes {
		if state.Slots[node.Name] {
			unknown--
		}
	}
	c := count{unavailable: unknown, admitted: unknown}
	b.all = b.all.plus(c)
	for domain := range b.domains {
		b.domains[domain] = b.domains[domain].plus(c)
	}
	return b
}

// Unavailable names the Nodes that take up the budget.
func Unavailable(state State, policy Policy) map[string]bool {
	return newBudget(state, policy).unavailable
}

func (b *budget) add(node *corev1.Node, c count) {
	b.all = b.all.plus(c)
	if b.policy.TopologyKey != "" {
		domain := domainOf(node, b.policy.TopologyKey)
		b.domains[domain] = b.domains[domain].plus(c)
	}
}

func (c count) plus(d count) count {
	return count{c.nodes + d.nodes, c.unavailable + d.unavailable, c.admitted + d.admitted}
}

// check reports whether the budget has a slot for a Node that holds none.
func (b *budget) check(node *corev1.Node) Decision {
	if !b.all.allows(b.policy.MaxUnavailable, b.unavailable[node.Name]) {
		return Decision{Reason: BudgetFull, Again: b.rested, Message: fmt.Sprintf("%d of %d Nodes are unavailable; --max-unavailable is %s",
			b.all.unavailable, b.all.nodes, b.policy.MaxUnavailable.String())}
	}
	if b.policy.TopologyKey == "" {
		return Decision{Reason: Admitted}
	}
	domain := domainOf(node, b.policy.TopologyKey)
	if c := b.domains[domain]; !c.allows(b.policy.MaxPerDomain, b.unavailable[node.Name]) {
		return Decision{Reason: DomainFull, Again: b.rested, Message: fmt.Sprintf("%d of %d Nodes %s are unavailable; --max-unavailable-per-domain is %s",
			c.unavailable, c.nodes, domain.in(b.policy.TopologyKey), b.policy.MaxPerDomain.String())}
	}
	return Decision{Reason: Admitted}
}

// take gives the Node a slot.
func (b *budget) take(node *corev1.Node) {
	c := count{admitted: 1}
	if !b.unavailable[node.Name] {
		c.unavailable = 1
		b.unavailable[node.Name] = true
	}
	b.add(node, c)
}

// release takes the slot of a Node in the ledger away, so that the Node can be checked like any other.
func (b *budget) release(node *corev1.Node) {
	c := count{admitted: -1}
	if protocol.IsReady(node) {
		c.unavailable = -1
		delete(b.unavailable, node.Name)
	}
	b.add(node, c)
}

// allows reports whether one more Node may be admitted. The reboot of a Node that is unavailable anyway makes no other Node
// unavailable, so such a Node does not wait for itself; it only waits while as many as the limit are admitted.
func (c count) allows(limit intstr.IntOrString, alreadyUnavailable bool) bool {
	most := scale(limit, c.nodes)
	if alreadyUnavailable {
		return c.admitted < most
	}
	return c.unavailable < most
}

// scale returns a limit as a number of Nodes. It rounds percentages up, so at least one Node may always reboot. The limit
// comes from ParseMaxUnavailable.
func scale(limit intstr.IntOrString, nodes int) int {
	most, err := intstr.GetScaledValueFromIntOrPercent(&limit, nodes, true)
	if err != nil {
		return 0
	}
	return most
}

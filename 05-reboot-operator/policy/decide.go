// Package policy decides which Node may reboot next. It consists of pure functions, which the controller and the
// administrator's tool call with the same state.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/controllers/reboot/protocol"
)

// Policy says how many Nodes may be unavailable at the same time, and which Nodes may be rebooted when.
type Policy struct {
	// MaxUnavailable is how many Nodes may be unavailable at the same time: a number, or a percentage of the selected
	// Nodes, rounded up as for a DaemonSet.
	MaxUnavailable intstr.IntOrString
	// TopologyKey is a label, such as topology.kubernetes.io/zone. The selected Nodes with the same value of it, which may be
	// empty, are a domain, and so are those without it; MaxPerDomain limits how many Nodes of a domain may be unavailable at
	// the same time, with percentages of the domain. "" for no such limit.
	TopologyKey  string
	MaxPerDomain intstr.IntOrString
	// Selector selects the Nodes that are counted and may be rebooted.
	Selector labels.Selector
	// OwnNode is the Node that the controller runs on, which goes last; "" if unknown.
	OwnNode string
	// Window says when Nodes are admitted; nil for always.
	Window *Window
	// PauseAfterReboot is how long a Node keeps its slot after its reboot, so that the next one has to wait.
	PauseAfterReboot time.Duration
}

// State is what a decision is based on.
type State struct {
	Nodes []*corev1.Node
	// Ledger is the ID of the ledger, to tell whose the admitted Nodes are.
	Ledger string
	// Slots names the Nodes in the ledger. They count as admitted even if their annotations in the cache do not say so yet.
	Slots map[string]bool
	// Unfinished are those of them that no controller has admitted yet, as far as the cache shows. They count until their entries
	// are gone, but since they were entered, a reason not to reboot one may have come up, or the limit may have changed.
	Unfinished []*corev1.Node
	// Refused holds, by the name of each Node that the API server did not let us admit, when to try again.
	Refused map[string]time.Time
	// Blockers holds a running Pod that blocks the reboot, by the name of its Node.
	Blockers map[string]string
	// Agents says, by the name of each Node, whether its agent is running; nil if that is not known of any.
	Agents map[string]bool
	Pauses []protocol.Pause
	Now    time.Time
}

// Reason says why a Node is, or is not, admitted.
type Reason string

const (
	Admitted      Reason = "Admitted"
	NotSelected   Reason = "NotSelected"
	Paused        Reason = "Paused"
	OutsideWindow Reason = "OutsideWindow"
	RetryLater    Reason = "RetryLater"
	NoAgent       Reason = "NoAgent"
	Blocked       Reason = "Blocked"
	BudgetFull    Reason = "BudgetFull"
	DomainFull    Reason = "DomainFull"
)

// Decision is about one Node that needs a reboot.
type Decision struct {
	Node    *corev1.Node
	Reason  Reason
	Message string    // explains the reason; "" if the Node is admitted
	Again   time.Time // when the decision may change without a change in the cluster; zero for never
}

// Decide returns a decision for each Node that waits for a reboot, in the order in which it considers them: those that hold
// a slot, then Nodes without an attempt, then by the time of the last attempt, so that no Node starves; the controller's own
// Node last. It is a pure function, and does not depend on the order of the Nodes in the state.
func Decide(state State, policy Policy) []Decision {
	b := newBudget(state, policy)
	opens := state.Now
	if policy.Window != nil {
		opens = policy.Window.Next(state.Now)
	}
	var decisions []Decision
	for _, node := range slices.Concat(state.Unfinished, candidates(state.Nodes, state.Slots, policy.OwnNode)) {
		d := decide(node, state, policy, opens)
		if d.Reason == Admitted {
			counted := state.Slots[node.Name] && !b.resting[node.Name]
			if counted {
				b.release(node)
			}
			if d = b.check(node); d.Reason == Admitted || counted {
				b.take(node)
			}
		}
		d.Node = node
		decisions = append(decisions, d)
	}
	return decisions
}

// candidates returns the Nodes that wait to be admitted, in the order in which they are considered.
func candidates(nodes []*corev1.Node, slots map[string]bool, ownNode string) []*corev1.Node {
	var waiting []*corev1.Node
	lastAttempt := map[*corev1.Node]time.Time{} // parsed once, because the sort compares each Node many times
	for _, node := range nodes {
		if protocol.PhaseOf(node) == protocol.Needed && !slots[node.Name] && node.DeletionTimestamp == nil {
			waiting = append(waiting, node)
			lastAttempt[node] = protocol.TimeOf(node, protocol.LastAttemptAnnotation)
		}
	}
	rank := func(node *corev1.Node) int {
		if node.Name == ownNode {
			return 1
		}
		return 0
	}
	slices.SortFunc(waiting, func(a, b *corev1.Node) int {
		return cmp.Or(rank(a)-rank(b), lastAttempt[a].Compare(lastAttempt[b]), strings.Compare(a.Name, b.Name))
	})
	return waiting
}

// decide returns the first reason not to admit a Node, except for the budget. opens is when the window opens next; now if it
// is open.
func decide(node *corev1.Node, state State, policy Policy, opens time.Time) Decision {
	if !policy.Selector.Matches(labels.Set(node.Labels)) {
		return Decision{Reason: NotSelected, Message: fmt.Sprintf("--node-selector %s does not select it", policy.Selector)}
	}
	if len(state.Pauses) > 0 {
		return Decision{Reason: Paused, Message: state.Pauses[0].String()}
	}
	if opens.After(state.Now) {
		return Decision{Reason: OutsideWindow, Message: fmt.Sprintf("the next window begins at %s", opens.Format("Mon 2006-01-02 15:04 MST")), Again: opens}
	}
	if retry := state.Refused[node.Name]; state.Now.Before(retry) {
		return Decision{Reason: RetryLater, Message: fmt.Sprintf("the API server refused to change it; the next attempt is due at %s", protocol.FormatTime(retry)), Again: retry}
	}
	if retry := protocol.TimeOf(node, protocol.RetryAfterAnnotation); state.Now.Before(retry) {
		return Decision{Reason: RetryLater, Message: fmt.Sprintf("the last attempt failed; the next one is due at %s", protocol.FormatTime(retry)), Again: retry}
	}
	if state.Agents != nil && !state.Agents[node.Name] {
		return Decision{Reason: NoAgent, Message: "no agent is running on it, so nobody would reboot it after the drain"}
	}
	if pod, ok := state.Blockers[node.Name]; ok {
		return Decision{Reason: Blocked, Message: fmt.Sprintf("Pod %s blocks it", pod)}
	}
	return Decision{Reason: Admitted}
}

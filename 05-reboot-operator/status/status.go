// Package status explains the state of a cluster to its administrator: how far each Node has got, and what it waits for.
package status

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/reboot/policy"
	"example.com/controllers/reboot/protocol"
)

// View is the state of the cluster as far as the user is allowed to read it.
type View struct {
	policy.State
	// Policy is that of the controller; nil if it is not known.
	Policy *policy.Policy
	// Remaining holds, by the name of each Node that is being drained, what the drain is waiting for; "" if nothing. Nodes
	// whose Pods could not be read are missing.
	Remaining map[string]string
	// Timeouts are those of the controller; 0 for one that is not known.
	Timeouts Timeouts
	// AgentPods are the flags of kubectl that select the agents' Pods; "" if they are not known.
	AgentPods string
}

// Timeouts are the options of a controller that limit how long a Node may stay in a phase.
type Timeouts struct {
	Drain, Agent, Reboot time.Duration
}

// NodeStatus is how far the reboot of a Node has got. "kubectl reboot status -o json" prints it.
type NodeStatus struct {
	Name  string         `json:"name"`
	Phase protocol.Phase `json:"phase"`
	// Since is when the Node entered the phase; nil if that is not known. For an Idle Node it is when its last attempt ended.
	Since *metav1.Time `json:"since,omitempty"`
	// Why is the reason that was given with the request for the reboot.
	Why string `json:"why,omitempty"`
	// BootIDBefore is the boot ID that the agent recorded before the reboot. It is set while the reboot is in progress.
	BootIDBefore string `json:"bootIDBefore,omitempty"`
	// BootID is the one that the kubelet reports.
	BootID        string        `json:"bootID,omitempty"`
	Ready         bool          `json:"ready"`
	Unschedulable bool          `json:"unschedulable"`
	WaitingFor    string        `json:"waitingFor,omitempty"`
	Decision      policy.Reason `json:"decision,omitempty"`      // of a Node that needs a reboot
	QueuePosition int           `json:"queuePosition,omitempty"` // of a Node that needs a reboot; 1 is next
	Failures      int           `json:"failures,omitempty"`      // attempts in a row that ended without a reboot
	LastAttempt   *metav1.Time  `json:"lastAttempt,omitempty"`
	RetryAfter    *metav1.Time  `json:"retryAfter,omitempty"`
}

// Status returns the status of every Node: first those that hold a slot, with the one closest to its end first, then those
// that wait, in the order in which they are considered, and then the others by name.
func (v *View) Status() []NodeStatus {
	decisions, position := v.decisions()
	statuses := make([]NodeStatus, 0, len(v.Nodes))
	for _, node := range v.Nodes {
		statuses = append(statuses, v.status(node, decisions[node.Name], position[node.Name]))
	}
	slices.SortFunc(statuses, func(a, b NodeStatus) int {
		return cmp.Or(rank(a.Phase)-rank(b.Phase), a.QueuePosition-b.QueuePosition, strings.Compare(a.Name, b.Name))
	})
	return statuses
}

// rank orders phases for a reader: what is going on now comes first.
func rank(phase protocol.Phase) int {
	return slices.Index([]protocol.Phase{protocol.InProgress, protocol.Approved, protocol.Draining, protocol.Cancelled, protocol.Needed, protocol.Idle}, phase)
}

// decisions returns the decision about each Node that waits, by name, and its position among them. Without a policy, only
// what does not depend on it is decided.
func (v *View) decisions() (decisions map[string]policy.Decision, position map[string]int) {
	decisions, position = map[string]policy.Decision{}, map[string]int{}
	if v.Policy == nil {
		return decisions, position
	}
	for i, d := range policy.Decide(v.State, *v.Policy) {
		decisions[d.Node.Name], position[d.Node.Name] = d, i+1
	}
	return decisions, position
}

func (v *View) status(node *corev1.Node, d policy.Decision, position int) NodeStatus {
	phase := protocol.PhaseOf(node)
	s := NodeStatus{
		Name:          node.Name,
		Phase:         phase,
		Since:         optionalTime(since(node)),
		Why:           cmp.Or(node.Annotations[protocol.NeededAnnotation], node.Annotations[protocol.NowAnnotation]),
		BootIDBefore:  node.Annotations[protocol.InProgressAnnotation],
		BootID:        node.Status.NodeInfo.BootID,
		Ready:         protocol.IsReady(node),
		Unschedulable: node.Spec.Unschedulable,
		WaitingFor:    v.waitingFor(node, d),
		Decision:      d.Reason,
		QueuePosition: position,
		LastAttempt:   optionalTime(protocol.TimeOf(node, protocol.LastAttemptAnnotation)),
		Failures:      protocol.Failures(node),
	}
	if phase == protocol.Needed {
		s.RetryAfter = optionalTime(protocol.TimeOf(node, protocol.RetryAfterAnnotation))
	}
	return s
}

// waitingFor says in a few words what must happen before the Node's phase changes; "" if nothing is expected to happen. d is
// the decision about a Node that needs a reboot, if there is one.
func (v *View) waitingFor(node *corev1.Node, d policy.Decision) string {
	if other := v.other(node); other != "" {
		return "the controller of ledger " + other
	}
	switch protocol.PhaseOf(node) {
	case protocol.Needed:
		return v.waitingToBeAdmitted(node, d)
	case protocol.Draining, protocol.Approved:
		if !node.Spec.Unschedulable {
			return "the controller to cordon it again"
		}
		if protocol.PhaseOf(node) == protocol.Approved {
			return "the agent"
		}
		switch remaining, known := v.Remaining[node.Name]; {
		case !known:
			return "its Pods to be evicted"
		case remaining == "":
			return "the controller to approve the reboot"
		default:
			return remaining
		}
	case protocol.InProgress:
		if !protocol.IsReady(node) {
			return "the machine to come back"
		}
		if !node.Spec.Unschedulable {
			return "somebody to cordon it"
		}
		return "the agent to see a new boot ID"
	case protocol.Cancelled:
		return "the controller to uncordon it"
	}
	return ""
}

func (v *View) waitingToBeAdmitted(node *corev1.Node, d policy.Decision) string {
	switch d.Reason {
	case policy.NotSelected:
		return "nothing: " + d.Message
	case policy.Paused:
		return v.Pauses[0].Resume()
	case policy.NoAgent:
		return "an agent on it"
	case policy.OutsideWindow:
		return "the window: " + d.Message
	case policy.RetryLater:
		return "its retry at " + protocol.FormatTime(d.Again)
	case policy.Blocked:
		return "Pod " + v.Blockers[node.Name] + " to end"
	case policy.BudgetFull:
		return "a free slot"
	case policy.DomainFull:
		return "a free slot of the Nodes " + v.Policy.InDomain(node)
	}
	switch {
	case v.Slots[node.Name]:
		return "the controller to cordon it"
	case len(v.Pauses) > 0:
		return v.Pauses[0].Resume()
	}
	return "the controller to admit it"
}

// since returns when the Node entered its phase; the zero time if that is not known.
func since(node *corev1.Node) time.Time {
	last := protocol.TimeOf(node, protocol.LastAttemptAnnotation)
	switch protocol.PhaseOf(node) {
	case protocol.Idle:
		return last
	case protocol.Needed: // since it was asked for, or since the attempt that followed
		if asked := annotated(node, protocol.NeededAnnotation); asked.After(last) {
			return asked
		}
		if protocol.Failures(node) > 0 {
			return last
		}
		return annotated(node, protocol.NeededAnnotation)
	case protocol.Cancelled: // the time is not recorded
		return time.Time{}
	}
	return protocol.TimeOf(node, protocol.SinceAnnotation)
}

// annotated returns when the field manager of an annotation last wrote to the Node, from its managedFields; the zero time if
// they do not say. For an annotation that was set with kubectl, that is the only record of the time.
func annotated(node *corev1.Node, annotation string) (last time.Time) {
	for _, entry := range node.ManagedFields {
		var owned struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		if _, ok := owned.Metadata.Annotations["f:"+annotation]; ok && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

func optionalTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// ShortBootID shortens a UUID to its first group, and leaves whatever follows the UUID: that is what changes in an
// [agent.InitBootID].
func ShortBootID(id string) string {
	const group, uuid = 8, 36
	if len(id) < uuid || strings.Count(id[:uuid], "-") != 4 || id[group] != '-' {
		return id
	}
	return id[:group] + id[uuid:]
}

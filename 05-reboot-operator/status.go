package reboot

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// View is the state of the cluster as far as the user is allowed to read it.
type View struct {
	State
	// Policy is that of the controller; nil if it is not known.
	Policy *Policy
	// Remaining holds, by the name of each Node that is being drained, what the drain is waiting for; "" if nothing. Nodes
	// whose Pods could not be read are missing.
	Remaining map[string]string
	// Timeouts are those of the controller; 0 for one that is not known.
	Timeouts Timeouts
}

// Timeouts are the options of a controller that limit how long a Node may stay in a phase.
type Timeouts struct {
	Drain, Agent, Reboot time.Duration
}

// NodeStatus is how far the reboot of a Node has got. "kubectl reboot status -o json" prints it.
type NodeStatus struct {
	Name  string `json:"name"`
	Phase Phase  `json:"phase"`
	// Since is when the Node entered the phase; nil if that is not known. For an Idle Node it is when its last attempt ended.
	Since *metav1.Time `json:"since,omitempty"`
	// Why is the reason that was given with the request for the reboot.
	Why string `json:"why,omitempty"`
	// BootIDBefore is the boot ID that the agent recorded before the reboot. It is set while the reboot is in progress.
	BootIDBefore string `json:"bootIDBefore,omitempty"`
	// BootID is the one that the kubelet reports.
	BootID        string       `json:"bootID,omitempty"`
	Ready         bool         `json:"ready"`
	Unschedulable bool         `json:"unschedulable"`
	WaitingFor    string       `json:"waitingFor,omitempty"`
	Decision      Reason       `json:"decision,omitempty"`      // of a Node that needs a reboot
	QueuePosition int          `json:"queuePosition,omitempty"` // of a Node that needs a reboot; 1 is next
	Failures      int          `json:"failures,omitempty"`      // attempts in a row that ended without a reboot
	LastAttempt   *metav1.Time `json:"lastAttempt,omitempty"`
	RetryAfter    *metav1.Time `json:"retryAfter,omitempty"`
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
func rank(phase Phase) int {
	return slices.Index([]Phase{InProgress, Approved, Draining, Cancelled, Needed, Idle}, phase)
}

// decisions returns the decision about each Node that waits, by name, and its position among them. Without a policy, only
// what does not depend on it is decided.
func (v *View) decisions() (decisions map[string]Decision, position map[string]int) {
	decisions, position = map[string]Decision{}, map[string]int{}
	if v.Policy == nil {
		return decisions, position
	}
	for i, d := range Decide(v.State, *v.Policy) {
		decisions[d.Node.Name], position[d.Node.Name] = d, i+1
	}
	return decisions, position
}

func (v *View) status(node *corev1.Node, d Decision, position int) NodeStatus {
	phase := PhaseOf(node)
	s := NodeStatus{
		Name:          node.Name,
		Phase:         phase,
		Since:         optionalTime(since(node)),
		Why:           cmp.Or(node.Annotations[NeededAnnotation], node.Annotations[NowAnnotation]),
		BootIDBefore:  node.Annotations[InProgressAnnotation],
		BootID:        node.Status.NodeInfo.BootID,
		Ready:         isReady(node),
		Unschedulable: node.Spec.Unschedulable,
		WaitingFor:    v.waitingFor(node, d),
		Decision:      d.Reason,
		QueuePosition: position,
		LastAttempt:   optionalTime(timeOf(node, LastAttemptAnnotation)),
		Failures:      failures(node),
	}
	if phase == Needed {
		s.RetryAfter = optionalTime(timeOf(node, RetryAfterAnnotation))
	}
	return s
}

// waitingFor says in a few words what must happen before the Node's phase changes; "" if nothing is expected to happen. d is
// the decision about a Node that needs a reboot, if there is one.
func (v *View) waitingFor(node *corev1.Node, d Decision) string {
	switch PhaseOf(node) {
	case Needed:
		return v.waitingToBeAdmitted(node, d)
	case Draining, Approved:
		if !node.Spec.Unschedulable {
			return "the controller to cordon it again"
		}
		if PhaseOf(node) == Approved {
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
	case InProgress:
		if !isReady(node) {
			return "the machine to come back"
		}
		if !node.Spec.Unschedulable {
			return "somebody to cordon it"
		}
		return "the agent to see a new boot ID"
	case Cancelled:
		return "the controller to uncordon it"
	}
	return ""
}

func (v *View) waitingToBeAdmitted(node *corev1.Node, d Decision) string {
	switch d.Reason {
	case NotSelected:
		return "nothing: " + d.Message
	case Paused:
		return "kubectl reboot resume"
	case OutsideWindow:
		return "the window: " + d.Message
	case RetryLater:
		return "its retry at " + formatTime(d.Again)
	case Blocked:
		return "Pod " + v.Blockers[node.Name] + " to end"
	case BudgetFull:
		return "a free slot"
	case DomainFull:
		return fmt.Sprintf("a free slot in %s=%s", v.Policy.TopologyKey, node.Labels[v.Policy.TopologyKey])
	}
	switch {
	case v.Slots[node.Name]:
		return "the controller to cordon it"
	case v.Paused:
		return "kubectl reboot resume"
	}
	return "the controller to admit it"
}

// since returns when the Node entered its phase; the zero time if that is not known.
func since(node *corev1.Node) time.Time {
	last := timeOf(node, LastAttemptAnnotation)
	switch PhaseOf(node) {
	case Idle:
		return last
	case Needed: // since it was asked for, or since the attempt that followed
		if asked := annotated(node, NeededAnnotation); asked.After(last) {
			return asked
		}
		if failures(node) > 0 {
			return last
		}
		return annotated(node, NeededAnnotation)
	case Cancelled: // the time is not recorded
		return time.Time{}
	}
	return timeOf(node, SinceAnnotation)
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

// Differ reports whether two versions of a Node may differ in their status. Most do not: they are heartbeats of the kubelet.
func Differ(old, node *corev1.Node) bool {
	return concerns(old, node) || old.Status.NodeInfo.BootID != node.Status.NodeInfo.BootID ||
		(old.DeletionTimestamp == nil) != (node.DeletionTimestamp == nil)
}

// failures returns the number of attempts in a row that ended without a reboot.
func failures(node *corev1.Node) int {
	n, err := strconv.Atoi(node.Annotations[FailuresAnnotation])
	if err != nil {
		return 0
	}
	return max(n, 0)
}

func optionalTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// ShortBootID shortens a UUID to its first group, and leaves whatever follows the UUID: that is what changes in an
// [InitBootID].
func ShortBootID(id string) string {
	const group, uuid = 8, 36
	if len(id) < uuid || strings.Count(id[:uuid], "-") != 4 || id[group] != '-' {
		return id
	}
	return id[:group] + id[uuid:]
}

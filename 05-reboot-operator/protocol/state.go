// Package protocol is what the controller, the agents and the administrator's tool agree upon: the annotations of a Node, the
// phases that follow from them, how a Node is changed, and the ledger of those that were admitted.
package protocol

import (
	corev1 "k8s.io/api/core/v1"
)

// Prefix is the prefix of all annotations below.
const Prefix = "reboot.controllers.example.com/"

// The annotations through which the administrator, the controller and a Node's agent communicate. A process may die at any
// moment, so everything that its successor must know is in them.
const (
	// NeededAnnotation asks for a reboot. Its value says why, and may be empty. Until the Node has been drained, removing the
	// annotation cancels the reboot. On a Node that has not been admitted, a sentinel asks again; [Cancel] prevents that.
	NeededAnnotation = Prefix + "reboot-needed"
	// NowAnnotation tells the agent to reboot. The controller moves the value of NeededAnnotation here when the Node has
	// been drained. Until the agent has acted on it, removing the annotation cancels the reboot.
	NowAnnotation = Prefix + "reboot-now"
	// InProgressAnnotation says that the agent is rebooting the machine. Its value is the boot ID before the reboot.
	InProgressAnnotation = Prefix + "reboot-in-progress"

	// AdmittedAnnotation marks a Node that the controller has admitted, and holds the time: RFC 3339, in UTC.
	AdmittedAnnotation = Prefix + "admitted"
	// AdmittedByAnnotation names the ledger of the controller that has admitted the Node, as namespace/name. Other controllers
	// leave the Node alone.
	AdmittedByAnnotation = Prefix + "admitted-by"
	// CordonedAnnotation says that the controller cordoned the Node, so it is uncordoned at the end. A Node that somebody
	// else had cordoned before stays cordoned.
	CordonedAnnotation = Prefix + "cordoned"
	// SinceAnnotation holds the time of the last transition to another phase.
	SinceAnnotation = Prefix + "since"
	// LastAttemptAnnotation holds the time at which the last attempt ended, with a reboot or without.
	LastAttemptAnnotation = Prefix + "last-attempt"
	// RebootedAnnotation holds the time at which the agent last saw a new boot ID after a reboot that it had been told to do.
	RebootedAnnotation = Prefix + "rebooted"
	// FailuresAnnotation holds the number of attempts in a row that ended without a reboot.
	FailuresAnnotation = Prefix + "failures"
	// RetryAfterAnnotation holds the time before which the Node is not admitted again.
	RetryAfterAnnotation = Prefix + "retry-after"
	// SentinelIgnoredAnnotation says that the machine's sentinel still asked for a reboot after the last one was completed, or
	// could not be checked then, or that the last reboot was cancelled. The sentinel is ignored until it stops asking; otherwise
	// the machine would reboot again and again.
	SentinelIgnoredAnnotation = Prefix + "sentinel-ignored"
)

// Phase is where a Node is on its way to a reboot.
type Phase string

const (
	Idle       Phase = "Idle"       // nobody has asked for a reboot
	Needed     Phase = "Needed"     // waits to be admitted
	Draining   Phase = "Draining"   // admitted and cordoned; its Pods are being evicted
	Approved   Phase = "Approved"   // drained; waits for the agent
	InProgress Phase = "InProgress" // the agent has recorded the boot ID and reboots
	Cancelled  Phase = "Cancelled"  // the request was withdrawn after the Node had been admitted
)

// Phases are all phases, in the order in which a Node passes through them.
var Phases = []Phase{Idle, Needed, Draining, Approved, InProgress, Cancelled}

// PhaseOf returns the phase of a Node. It depends on which annotations are present, and not on their values. A reboot-now on
// a Node that was not admitted did not come from the controller, and has no effect.
func PhaseOf(node *corev1.Node) Phase {
	has := func(annotation string) bool { _, ok := node.Annotations[annotation]; return ok }
	switch {
	case has(InProgressAnnotation):
		return InProgress
	case has(AdmittedAnnotation) && has(NowAnnotation):
		return Approved
	case has(AdmittedAnnotation) && has(NeededAnnotation):
		return Draining
	case has(AdmittedAnnotation):
		return Cancelled
	case has(NeededAnnotation):
		return Needed
	}
	return Idle
}

// HoldsSlot reports whether a Node in this phase counts as unavailable because of the controller.
func (p Phase) HoldsSlot() bool { return p != Idle && p != Needed }

// Transition is one way in which the phase of a Node changes.
type Transition struct {
	From, To Phase
	By       string // "administrator", "controller" or "agent"
	When     string
}

// Transitions are all transitions. Each is one write, and the controller's and the agent's are conditional: they fail if
// the Node has changed since it was read. The diagram in the README is drawn from this table.
var Transitions = []Transition{
	{Idle, Needed, "administrator", "annotates the Node with reboot-needed; so does the agent, for its sentinel"},
	{Needed, Idle, "administrator", "removes reboot-needed"},
	{Needed, Draining, "controller", "has a free slot: cordons the Node"},
	{Draining, Approved, "controller", "no Pod is left to evict: writes reboot-now"},
	{Draining, Needed, "controller", "the drain took too long: uncordons the Node, retries later"},
	{Draining, Cancelled, "administrator", "removes reboot-needed"},
	{Approved, Draining, "controller", "somebody uncordoned the Node: cordons and drains it again"},
	{Approved, Needed, "controller", "the agent does not act: uncordons the Node, retries later"},
	{Approved, Cancelled, "administrator", "removes reboot-now"},
	{Approved, Draining, "administrator", "removes reboot-now, but has asked for another reboot"},
	{Approved, InProgress, "agent", "records the boot ID"},
	{InProgress, Idle, "agent", "the boot ID has changed: uncordons the Node"},
	{InProgress, Needed, "agent", "the same, and another reboot has been asked for"},
	{InProgress, Cancelled, "administrator", "removes reboot-in-progress: gives up on this reboot"},
	{InProgress, Draining, "administrator", "the same, but has asked for another reboot"},
	{Cancelled, Idle, "controller", "uncordons the Node"},
	{Cancelled, Draining, "administrator", "annotates the Node again before the controller has seen it"},
}

package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"example.com/controllers/reboot/policy"
	"example.com/controllers/reboot/protocol"
)

// Explain says why a Node is not rebooting now, in sentences. ok is false if there is no such Node.
func (v *View) Explain(name string) (sentences []string, ok bool) {
	i := slices.IndexFunc(v.Nodes, func(node *corev1.Node) bool { return node.Name == name })
	if i < 0 {
		return nil, false
	}
	node := v.Nodes[i]
	if other := v.other(node); other != "" {
		return []string{
			fmt.Sprintf("Node %s is rebooted by another controller: that of the ledger %s admitted it %s.", name, other, v.ago(protocol.TimeOf(node, protocol.AdmittedAnnotation))),
			fmt.Sprintf("To see more: kubectl reboot why %s --namespace %s --ledger %s.", name, namespaceOf(other), nameOf(other)),
			fmt.Sprintf("If that controller is gone, hand the Node over: kubectl annotate node %s --overwrite %s=%s.", name, protocol.AdmittedByAnnotation, v.Ledger),
		}, true
	}
	switch protocol.PhaseOf(node) {
	case protocol.Needed:
		return v.explainNeeded(node), true
	case protocol.Draining:
		return v.explainDraining(node), true
	case protocol.Approved:
		return v.explainApproved(node), true
	case protocol.InProgress:
		return v.explainInProgress(node), true
	case protocol.Cancelled:
		return []string{fmt.Sprintf("The reboot of Node %s was cancelled after it had been admitted; it keeps its slot until the controller has uncordoned it.", name)}, true
	}
	return v.explainIdle(node), true
}

// other returns the ledger of another controller that has admitted a Node; "" if none has.
func (v *View) other(node *corev1.Node) string {
	if by := node.Annotations[protocol.AdmittedByAnnotation]; v.Ledger != "" && protocol.PhaseOf(node).HoldsSlot() && !protocol.MayBelongTo(node, v.Ledger) {
		return by
	}
	return ""
}

func namespaceOf(ledger string) string { namespace, _, _ := strings.Cut(ledger, "/"); return namespace }
func nameOf(ledger string) string      { _, name, _ := strings.Cut(ledger, "/"); return name }

func (v *View) explainIdle(node *corev1.Node) []string {
	sentences := []string{fmt.Sprintf("Nobody has asked for a reboot of Node %s; \"kubectl reboot request %s\" does.", node.Name, node.Name)}
	if last := protocol.TimeOf(node, protocol.LastAttemptAnnotation); !last.IsZero() {
		sentences = append(sentences, fmt.Sprintf("Its last reboot, or attempt at one, ended %s.", v.ago(last)))
	}
	if why, ignored := node.Annotations[protocol.SentinelIgnoredAnnotation]; ignored {
		sentences = append(sentences, "The sentinel of its machine is ignored until it stops asking for a reboot"+because(why)+".")
	}
	if _, stray := node.Annotations[protocol.NowAnnotation]; stray {
		sentences = append(sentences, "Its annotation "+protocol.NowAnnotation+" has no effect, because the controller has not admitted the Node.")
	}
	return sentences
}

func (v *View) explainNeeded(node *corev1.Node) []string {
	var sentences []string
	add := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	decisions, position := v.decisions()
	d, decided := decisions[node.Name]
	switch {
	case node.DeletionTimestamp != nil:
		add("Node %s needs a reboot, and is being deleted; such Nodes are not admitted.", node.Name)
		return sentences
	case v.Slots[node.Name]:
		add("Node %s has a slot; the controller is about to cordon and drain it.", node.Name)
		return sentences
	case !decided && len(v.Pauses) > 0:
		add("Node %s needs a reboot, but %s.", node.Name, protocol.Describe(v.Pauses))
	case !decided:
		add("Node %s needs a reboot and waits for the controller to admit it.", node.Name)
	case d.Reason == policy.Admitted:
		add("Nothing keeps Node %s from being rebooted now; it waits for the controller to admit it.", node.Name)
	case d.Reason == policy.Paused:
		add("Node %s needs a reboot, but %s.", node.Name, protocol.Describe(v.Pauses))
	case d.Reason == policy.NoAgent:
		add("Node %s needs a reboot, but is not admitted now: %s. See why: kubectl describe daemonsets,pods %s.", node.Name, d.Message, v.AgentPods)
	default:
		add("Node %s needs a reboot, but is not admitted now: %s.", node.Name, d.Message)
	}
	if d.Reason == policy.NotSelected {
		add("If another controller is for it, name that one's ledger: kubectl reboot why %s --ledger LEDGER.", node.Name)
	}
	if d.Reason == policy.BudgetFull || d.Reason == policy.DomainFull {
		if names := v.unavailable(node, d.Reason == policy.DomainFull, decisions); len(names) > 0 {
			add("Unavailable: %s.", enumerate(names, 10))
		}
	}
	if d.Reason != policy.NotSelected && len(decisions) > 1 {
		add("It is number %d of the %d Nodes that wait.", position[node.Name], len(decisions))
	}
	if n := protocol.Failures(node); n > 0 {
		add("Its last %s without a reboot.", plural(n, "attempt ended", "attempts ended"))
	}
	return sentences
}

// unavailable lists the Nodes that take up the budget, with the reason; only those in the same domain as a Node if domain is
// set. Nodes that are admitted before it are among them.
func (v *View) unavailable(of *corev1.Node, domain bool, decisions map[string]policy.Decision) []string {
	taken := policy.Unavailable(v.State, *v.Policy)
	var names []string
	for _, node := range v.Nodes {
		next := decisions[node.Name].Reason == policy.Admitted
		if !taken[node.Name] && !next || domain && !v.Policy.SameDomain(node, of) {
			continue
		}
		switch phase := protocol.PhaseOf(node); {
		case phase.HoldsSlot():
			names = append(names, fmt.Sprintf("%s (%s)", node.Name, phase))
		case v.Slots[node.Name]:
			names = append(names, node.Name+" (admitted)")
		case next:
			names = append(names, node.Name+" (next)")
		case protocol.IsReady(node): // or it would not be in the list
			names = append(names, fmt.Sprintf("%s (rebooted %s; --pause-after-reboot is %s)", node.Name,
				v.ago(protocol.TimeOf(node, protocol.RebootedAnnotation)), duration.HumanDuration(v.Policy.PauseAfterReboot)))
		default:
			names = append(names, node.Name+" (not ready)")
		}
	}
	slices.Sort(names)
	return names
}

func (v *View) explainDraining(node *corev1.Node) []string {
	admitted := protocol.TimeOf(node, protocol.AdmittedAnnotation)
	sentences := []string{fmt.Sprintf("Node %s was admitted %s and is being drained.", node.Name, v.ago(admitted))}
	remaining, known := v.Remaining[node.Name]
	switch {
	case !node.Spec.Unschedulable:
		sentences = append(sentences, "Somebody uncordoned it; it waits for the controller to cordon it again.")
	case remaining != "":
		sentences = append(sentences, "The drain waits for "+remaining+".")
	case known:
		sentences = append(sentences, "Its Pods are gone; it waits for the controller to approve the reboot.")
	}
	return append(sentences, v.deadline(admitted, v.Timeouts.Drain, "--drain-timeout",
		"the controller gives up, uncordons it and retries later")...)
}

func (v *View) explainApproved(node *corev1.Node) []string {
	if !node.Spec.Unschedulable {
		return []string{fmt.Sprintf("Node %s was drained, but somebody uncordoned it; it waits for the controller to cordon and drain it again.", node.Name)}
	}
	since := protocol.TimeOf(node, protocol.SinceAnnotation)
	sentences := []string{
		fmt.Sprintf("Node %s was drained %s, and waits for its agent to reboot it.", node.Name, v.ago(since)),
		fmt.Sprintf("See whether the agent runs there: kubectl get pods -A --field-selector spec.nodeName=%s.", node.Name),
	}
	return append(sentences, v.deadline(since, v.Timeouts.Agent, "--agent-timeout",
		"the controller gives up, uncordons it and retries later")...)
}

func (v *View) explainInProgress(node *corev1.Node) []string {
	since := protocol.TimeOf(node, protocol.SinceAnnotation)
	sentences := []string{fmt.Sprintf("The reboot of Node %s has been in progress since %s, and ends when its agent sees a boot ID other than %q.",
		node.Name, v.at(since), node.Annotations[protocol.InProgressAnnotation])}
	if !node.Spec.Unschedulable {
		sentences = append(sentences, "Somebody uncordoned it; unless the machine is going down already, its agent does not reboot it until it is cordoned.")
	}
	if !protocol.IsReady(node) {
		sentences = append(sentences, "The Node is not ready: the machine is down, or still starting.")
	}
	if limit := v.Timeouts.Reboot; limit > 0 && !since.IsZero() && v.Now.Sub(since) >= limit {
		return append(sentences, fmt.Sprintf("That is longer than --reboot-timeout %s: check the machine. The Node keeps its slot; if the machine is gone for good, delete the Node.",
			duration.HumanDuration(limit)))
	}
	return sentences
}

// deadline says what happens after a timeout; nothing if the timeout or its beginning is not known.
func (v *View) deadline(since time.Time, timeout time.Duration, flag, then string) []string {
	if timeout <= 0 || since.IsZero() {
		return nil
	}
	return []string{fmt.Sprintf("At %s, after %s %s, %s.", protocol.FormatTime(since.Add(timeout)), flag, duration.HumanDuration(timeout), then)}
}

// ControllerProblem says why it seems that no controller is running, judging from its Lease; "" if one is.
func ControllerProblem(lease *coordinationv1.Lease, now time.Time) string {
	name := fmt.Sprintf("Lease %s/%s", lease.Namespace, lease.Name)
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" {
		return fmt.Sprintf("No controller is running: nobody holds %s.", name)
	}
	if spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return ""
	}
	if expired := spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second); now.After(expired) {
		return fmt.Sprintf("No controller is running: %s last renewed %s %s ago.", *spec.HolderIdentity, name, duration.HumanDuration(now.Sub(spec.RenewTime.Time)))
	}
	return ""
}

// ago returns how long ago a time is, or that it is not known.
func (v *View) ago(t time.Time) string {
	if t.IsZero() {
		return "at an unknown time"
	}
	return duration.HumanDuration(max(0, v.Now.Sub(t))) + " ago" // the clocks may differ
}

// at returns a time and how long ago it is, or that it is not known.
func (v *View) at(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return fmt.Sprintf("%s (%s)", protocol.FormatTime(t), v.ago(t))
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// plural returns a number with a noun: "attempt ended" alone if it is 1.
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// enumerate joins names, and says how many more there are if there are more than most.
func enumerate(names []string, most int) string {
	if len(names) > most {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

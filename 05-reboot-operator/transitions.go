package reboot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/protocol"
)

// startDrain moves a Node that is in the ledger from Needed to Draining.
func (c *Controller) startDrain(ctx context.Context, node *corev1.Node) error {
	now := protocol.FormatTime(time.Now())
	change := protocol.NewChange().Remove(protocol.NowAnnotation).Set(protocol.AdmittedAnnotation, now).
		Set(protocol.AdmittedByAnnotation, c.ledgerID()).Set(protocol.SinceAnnotation, now)
	if !node.Spec.Unschedulable {
		change = change.Set(protocol.CordonedAnnotation, "true")
		change.Unschedulable = new(true)
	}
	if _, err := protocol.Write(ctx, c.client, node, change); err != nil {
		return protocol.IgnoreNotFound(err)
	}
	klog.FromContext(ctx).Info("Admitted, draining", "node", node.Name)
	c.told.forget(node.Name) // what was told about earlier attempts
	c.tell(node, corev1.EventTypeNormal, "RebootAdmitted", "Drain", now, "Cordoned, and draining for a reboot")
	return nil
}

// isRefused reports whether the API server will answer the same request in the same way: a policy or a webhook forbids it.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// putOff turns a refusal into an Event and a delay for this Node, so that the others have their turn. It returns any other
// error.
func (c *Controller) putOff(ctx context.Context, node *corev1.Node, err error) error {
	if !isRefused(err) {
		return err
	}
	c.refused[node.Name] = time.Now().Add(c.RetryInterval)
	klog.FromContext(ctx).Error(err, "Refused, trying again later", "node", node.Name, "after", c.RetryInterval)
	c.tell(node, corev1.EventTypeWarning, "AdmissionRefused", "Admit", err.Error(), "Not rebooting now: %s", oneLine(err))
	return nil
}

// withdraw ends the attempt of a Node that was entered in the ledger and may not be admitted now. While the Node has the
// resourceVersion of its entry, another controller may still admit it, however late. This write changes that, so the entry can
// be removed.
func (c *Controller) withdraw(ctx context.Context, node *corev1.Node) error {
	_, err := protocol.Write(ctx, c.client, node, protocol.NewChange().Set(protocol.LastAttemptAnnotation, protocol.FormatTime(time.Now())))
	return protocol.IgnoreNotFound(err)
}

// drain moves a Node from Draining to Approved, or back to Needed if that takes too long. The cache may be stale, and show a
// Node that has been rebooted since. And a Node that was uncordoned for a moment may have new Pods. So the order matters: read
// the Node, check that it is cordoned and not rebooted yet, evict its Pods, and, if there are none, approve the reboot on the
// condition that the Node has not changed since it was read.
func (c *Controller) drain(ctx context.Context, name string) (again time.Duration, err error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read Node %s: %w", name, err)
	}
	if protocol.PhaseOf(node) != protocol.Draining || !node.Spec.Unschedulable || !c.owns(node) {
		return 0, nil // the watch delivers this version, and its handler requeues the Node
	}
	left := c.DrainTimeout - time.Since(protocol.TimeOf(node, protocol.AdmittedAnnotation))
	overdue := left <= 0
	// The time may have passed while no controller was running. Pods of a Node that will not be rebooted are left alone.
	waits, again, err := c.drainer.Step(ctx, name, overdue)
	switch {
	case overdue && err != nil:
		return 0, c.giveUp(ctx, node, "DrainTimeout", fmt.Sprintf("the drain took longer than %s: %s", c.DrainTimeout, oneLine(err)))
	case overdue && len(waits) > 0:
		return 0, c.giveUp(ctx, node, "DrainTimeout", fmt.Sprintf("the drain took longer than %s: %s", c.DrainTimeout, drain.Text(waits)))
	case err != nil:
		if status := apierrors.APIStatus(nil); errors.As(err, &status) { // it may stay the same for long
			c.tell(node, corev1.EventTypeWarning, "EvictionFailed", "Drain", node.Annotations[protocol.AdmittedAnnotation], "%s", oneLine(err))
		}
		return 0, err
	case len(waits) > 0:
		c.tellWaiting(node, waits)
		return min(again, left), nil
	}
	return 0, c.approve(ctx, node)
}

// oneLine returns the text of an error that may be several: those of different Pods.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// approve tells the agent to reboot a Node that has been drained.
func (c *Controller) approve(ctx context.Context, node *corev1.Node) error {
	approved := protocol.NewChange().Remove(protocol.NeededAnnotation).Set(protocol.NowAnnotation, node.Annotations[protocol.NeededAnnotation]).
		Set(protocol.SinceAnnotation, protocol.FormatTime(time.Now()))
	if _, err := protocol.Write(ctx, c.client, node, approved); err != nil {
		return protocol.IgnoreNotFound(err)
	}
	klog.FromContext(ctx).Info("Drained, the agent may reboot")
	return nil
}

// awaitReboot warns about a reboot that takes long. Only the agent can tell whether the machine has rebooted, so nothing is
// changed here: not even if somebody uncordoned the Node, because the machine may be going down already.
func (c *Controller) awaitReboot(node *corev1.Node, since time.Duration) (again time.Duration) {
	attempt := node.Annotations[protocol.InProgressAnnotation] + node.Annotations[protocol.SinceAnnotation]
	if !node.Spec.Unschedulable {
		c.tell(node, corev1.EventTypeWarning, "Uncordoned", "Reboot", attempt,
			"Somebody uncordoned the Node during its reboot; unless the machine is going down already, the agent does not reboot it until it is cordoned")
	}
	if since < c.RebootTimeout {
		return c.RebootTimeout - since
	}
	c.tell(node, corev1.EventTypeWarning, "RebootTimeout", "Reboot", attempt,
		"The machine has not started with another boot ID for %s; the Node keeps its slot", c.RebootTimeout)
	return 0
}

// cordonAgain drains a Node again that somebody uncordoned before it was rebooted.
func (c *Controller) cordonAgain(ctx context.Context, node *corev1.Node) error {
	cordoned := protocol.NewChange().Set(protocol.CordonedAnnotation, "true").Set(protocol.SinceAnnotation, protocol.FormatTime(time.Now()))
	cordoned.Unschedulable = new(true)
	if why, approved := node.Annotations[protocol.NowAnnotation]; approved {
		cordoned = cordoned.Remove(protocol.NowAnnotation).Set(protocol.NeededAnnotation, why)
	}
	if _, err := protocol.Write(ctx, c.client, node, cordoned); err != nil {
		return protocol.IgnoreNotFound(err)
	}
	c.tell(node, corev1.EventTypeWarning, "CordonedAgain", "Cordon", node.ResourceVersion, "Somebody uncordoned the Node before its reboot; cordoned it again")
	return nil
}

// giveUp ends an attempt without a reboot. The next one waits, twice as long after each failure.
func (c *Controller) giveUp(ctx context.Context, node *corev1.Node, reason, message string) error {
	now, failures := time.Now(), protocol.Failures(node)
	wait := c.retryWait(failures)
	change := protocol.End(node, now).Set(protocol.FailuresAnnotation, strconv.Itoa(failures+1)).Set(protocol.RetryAfterAnnotation, protocol.FormatTime(now.Add(wait)))
	if why, approved := node.Annotations[protocol.NowAnnotation]; approved {
		change = change.Set(protocol.NeededAnnotation, why)
	}
	if _, err := protocol.Write(ctx, c.client, node, change); err != nil {
		return protocol.IgnoreNotFound(err)
	}
	c.metrics.failures.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).Info("Gave up for now", "reason", reason, "message", message, "retryAfter", wait)
	c.tell(node, corev1.EventTypeWarning, reason, "Reboot", node.ResourceVersion, "Not rebooted; next attempt in %s: %s", wait, message)
	return nil
}

// cancel frees the slot of a Node whose reboot was cancelled. Its sentinel may still ask for one, and is ignored as after
// "kubectl reboot cancel", or the Node would be drained again.
func (c *Controller) cancel(ctx context.Context, node *corev1.Node) error {
	cancelled := protocol.End(node, time.Now()).Remove(protocol.FailuresAnnotation, protocol.RetryAfterAnnotation)
	if _, ignored := node.Annotations[protocol.SentinelIgnoredAnnotation]; !ignored {
		cancelled = cancelled.Set(protocol.SentinelIgnoredAnnotation, "cancelled")
	}
	if _, err := protocol.Write(ctx, c.client, node, cancelled); err != nil {
		return protocol.IgnoreNotFound(err)
	}
	c.tell(node, corev1.EventTypeNormal, "RebootCancelled", "Reboot", node.ResourceVersion, "The request for a reboot was withdrawn")
	return nil
}

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
)

// startDrain moves a Node that is in the ledger from Needed to Draining.
func (c *Controller) startDrain(ctx context.Context, node *corev1.Node) error {
	now := formatTime(time.Now())
	change := newChange().remove(NowAnnotation).set(AdmittedAnnotation, now).set(SinceAnnotation, now)
	if !node.Spec.Unschedulable {
		change = change.set(CordonedAnnotation, "true")
		change.unschedulable = new(true)
	}
	if _, err := write(ctx, c.client, node, change); err != nil {
		return ignoreNotFound(err)
	}
	klog.FromContext(ctx).Info("Admitted, draining", "node", node.Name)
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
	_, err := write(ctx, c.client, node, newChange().set(LastAttemptAnnotation, formatTime(time.Now())))
	return ignoreNotFound(err)
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
	if PhaseOf(node) != Draining || !node.Spec.Unschedulable {
		return 0, nil // the watch delivers this version, and its handler requeues the Node
	}
	left := c.DrainTimeout - time.Since(timeOf(node, AdmittedAnnotation))
	overdue := left <= 0
	// The time may have passed while no controller was running. Pods of a Node that will not be rebooted are left alone.
	waiting, again, err := c.drainer.step(ctx, name, overdue)
	switch {
	case overdue && err != nil:
		return 0, c.giveUp(ctx, node, "DrainTimeout", fmt.Sprintf("the drain took longer than %s: %s", c.DrainTimeout, oneLine(err)))
	case overdue && waiting != "":
		return 0, c.giveUp(ctx, node, "DrainTimeout", fmt.Sprintf("the drain took longer than %s: %s", c.DrainTimeout, waiting))
	case err != nil:
		if status := apierrors.APIStatus(nil); errors.As(err, &status) { // it may stay the same for long
			c.tell(node, corev1.EventTypeWarning, "EvictionFailed", "Drain", node.Annotations[AdmittedAnnotation], "%s", oneLine(err))
		}
		return 0, err
	case waiting != "":
		if again == evictionRetry {
			c.tell(node, corev1.EventTypeWarning, "DrainWaiting", "Drain", node.Annotations[AdmittedAnnotation], "%s", waiting)
		}
		return min(again, left), nil
	}
	return 0, c.approve(ctx, node)
}

// oneLine returns the text of an error that may be several: those of different Pods.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// approve tells the agent to reboot a Node that has been drained.
func (c *Controller) approve(ctx context.Context, node *corev1.Node) error {
	approved := newChange().remove(NeededAnnotation).set(NowAnnotation, node.Annotations[NeededAnnotation]).
		set(SinceAnnotation, formatTime(time.Now()))
	if _, err := write(ctx, c.client, node, approved); err != nil {
		return ignoreNotFound(err)
	}
	klog.FromContext(ctx).Info("Drained, the agent may reboot")
	return nil
}

// awaitReboot warns about a reboot that takes long. Only the agent can tell whether the machine has rebooted, so nothing is
// changed here: not even if somebody uncordoned the Node, because the machine may be going down already.
func (c *Controller) awaitReboot(node *corev1.Node, since time.Duration) (again time.Duration) {
	attempt := node.Annotations[InProgressAnnotation] + node.Annotations[SinceAnnotation]
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
	cordoned := newChange().set(CordonedAnnotation, "true").set(SinceAnnotation, formatTime(time.Now()))
	cordoned.unschedulable = new(true)
	if why, approved := node.Annotations[NowAnnotation]; approved {
		cordoned = cordoned.remove(NowAnnotation).set(NeededAnnotation, why)
	}
	if _, err := write(ctx, c.client, node, cordoned); err != nil {
		return ignoreNotFound(err)
	}
	c.tell(node, corev1.EventTypeWarning, "CordonedAgain", "Cordon", node.ResourceVersion, "Somebody uncordoned the Node before its reboot; cordoned it again")
	return nil
}

// giveUp ends an attempt without a reboot. The next one waits, twice as long after each failure.
func (c *Controller) giveUp(ctx context.Context, node *corev1.Node, reason, message string) error {
	now, failures := time.Now(), failures(node)
	wait := c.retryWait(failures)
	change := end(node, now).set(FailuresAnnotation, strconv.Itoa(failures+1)).set(RetryAfterAnnotation, formatTime(now.Add(wait)))
	if why, approved := node.Annotations[NowAnnotation]; approved {
		change = change.set(NeededAnnotation, why)
	}
	if _, err := write(ctx, c.client, node, change); err != nil {
		return ignoreNotFound(err)
	}
	c.metrics.failures.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).Info("Gave up for now", "reason", reason, "message", message, "retryAfter", wait)
	c.tell(node, corev1.EventTypeWarning, reason, "Reboot", node.ResourceVersion, "Not rebooted; next attempt in %s: %s", wait, message)
	return nil
}

// cancel frees the slot of a Node whose reboot was cancelled. Its sentinel may still ask for one, and is ignored as after
// "kubectl reboot cancel", or the Node would be drained again.
func (c *Controller) cancel(ctx context.Context, node *corev1.Node) error {
	cancelled := end(node, time.Now()).remove(FailuresAnnotation, RetryAfterAnnotation)
	if _, ignored := node.Annotations[SentinelIgnoredAnnotation]; !ignored {
		cancelled = cancelled.set(SentinelIgnoredAnnotation, "cancelled")
	}
	if _, err := write(ctx, c.client, node, cancelled); err != nil {
		return ignoreNotFound(err)
	}
	c.tell(node, corev1.EventTypeNormal, "RebootCancelled", "Reboot", node.ResourceVersion, "The request for a reboot was withdrawn")
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

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

// drain moves a Node from Draining to Approved, or back to Needed if that takes too long.
func (c *Controller) drain(ctx context.Context, node *corev1.Node) (again time.Duration, err error) {
	left := c.DrainTimeout - time.Since(timeOf(node, AdmittedAnnotation))
	overdue := left <= 0
	// The time may have passed while no controller was running. Pods of a Node that will not be rebooted are left alone.
	waiting, again, err := c.drainer.step(ctx, node.Name, overdue)
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
	return c.approve(ctx, node.Name, overdue)
}

// oneLine returns the text of an error that may be several: those of different Pods.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// approve tells the agent to reboot. A Node that was uncordoned for a moment may have new Pods, so the order matters: read the
// Node, check that it is cordoned and empty, and write on the condition that it has not changed since it was read.
func (c *Controller) approve(ctx context.Context, name string, overdue bool) (again time.Duration, err error) {
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
	if waiting, again, err := c.drainer.step(ctx, name, overdue); err != nil || waiting != "" {
		return again, err
	}
	approved := newChange().remove(NeededAnnotation).set(NowAnnotation, node.Annotations[NeededAnnotation]).
		set(SinceAnnotation, formatTime(time.Now()))
	if _, err := write(ctx, c.client, node, approved); err != nil {
		return 0, ignoreNotFound(err)
	}
	klog.FromContext(ctx).Info("Drained, the agent may reboot")
	return 0, nil
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

// cancel frees the slot of a Node whose reboot was cancelled.
func (c *Controller) cancel(ctx context.Context, node *corev1.Node) error {
	if _, err := write(ctx, c.client, node, end(node, time.Now()).remove(FailuresAnnotation, RetryAfterAnnotation)); err != nil {
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

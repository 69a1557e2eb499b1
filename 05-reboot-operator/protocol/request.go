package protocol

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// ErrTooLate is the error of [Cancel] for a Node whose reboot is in progress.
var ErrTooLate = errors.New("the reboot is in progress; it is too late to cancel it")

// Request asks for a reboot of a Node, unless one has been requested already. The reason may be empty. It returns what it did
// in a few words.
func Request(ctx context.Context, client kubernetes.Interface, name, why string) (done string, err error) {
	return edit(ctx, client, name, func(node *corev1.Node) (Change, string, error) {
		switch PhaseOf(node) {
		case Idle, Cancelled:
			return NewChange().Set(NeededAnnotation, why), "reboot requested", nil
		case Needed:
			return Change{}, "reboot already requested", nil
		}
		return Change{}, "reboot already in progress", nil
	})
}

// Cancel withdraws the request for a reboot of a Node. A sentinel that still asks for one is ignored until it stops asking. If
// the Node has been admitted, the controller uncordons it. It returns what it did in a few words.
func Cancel(ctx context.Context, client kubernetes.Interface, name string) (done string, err error) {
	return edit(ctx, client, name, func(node *corev1.Node) (Change, string, error) {
		needed, isNeeded := node.Annotations[NeededAnnotation]
		now, isApproved := node.Annotations[NowAnnotation]
		switch phase := PhaseOf(node); {
		case phase == InProgress && isNeeded: // asked for again meanwhile
			return NewChange().Remove(NeededAnnotation), "reboot after the one in progress cancelled", nil
		case phase == InProgress:
			return Change{}, "", ErrTooLate
		case phase == Cancelled:
			return Change{}, "reboot already cancelled", nil
		case !isNeeded && !isApproved:
			return Change{}, "no reboot requested", nil
		}
		why := needed
		if !isNeeded {
			why = now
		}
		return NewChange().Remove(NeededAnnotation, NowAnnotation, FailuresAnnotation, RetryAfterAnnotation).
			Set(SentinelIgnoredAnnotation, why).Set(LastAttemptAnnotation, FormatTime(time.Now())), "reboot cancelled", nil
	})
}

// edit reads a Node and writes the change that decide returns, and does both again if the Node has changed in between. A
// change without annotations is not written.
func edit(ctx context.Context, client kubernetes.Interface, name string, decide func(*corev1.Node) (Change, string, error)) (done string, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var c Change
		if c, done, err = decide(node); err != nil {
			return fmt.Errorf("node %q: %w", name, err)
		}
		if len(c.Annotations) == 0 {
			return nil
		}
		_, err = Write(ctx, client, node, c)
		return err
	})
	if err != nil {
		return "", err
	}
	return done, nil
}

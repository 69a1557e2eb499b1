// Package ghostlock reboots machines one after the other, with a lock.
package ghostlock

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// LockName is the name of the ConfigMap with the lock. Its key "holder" has the name of the Node that holds it; it is
// empty if the lock is free.
const LockName = "reboot-lock"

// Machine is the machine that the agent runs on.
type Machine interface {
	NeedsReboot() bool
	Reboot(ctx context.Context) error // returns when the machine is back
}

// Agent reboots its machine when that needs it and the lock is free.
type Agent struct {
	Client    kubernetes.Interface
	Namespace string // of the lock
	NodeName  string
	Machine   Machine
	Interval  time.Duration // the pause between two attempts
}

// Run reconciles until ctx is cancelled.
func (a *Agent) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := a.reconcile(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reconcile failed, will retry", "node", a.NodeName)
		}
		select {
		case <-time.After(a.Interval):
		case <-ctx.Done():
		}
	}
	return nil
}

// reconcile reboots the machine if it needs that and the lock is free. It releases a lock that the agent holds already:
// the agent has been restarted since.
func (a *Agent) reconcile(ctx context.Context) error {
	if !a.Machine.NeedsReboot() {
		return a.release(ctx)
	}
	acquired, err := a.acquire(ctx)
	if err != nil || !acquired {
		return err
	}
	if err := a.Machine.Reboot(ctx); err != nil {
		return fmt.Errorf("reboot %s: %w", a.NodeName, err)
	}
	return a.release(ctx)
}

// acquire takes the lock, unless another Node holds it. If two agents try at the same time, one of them gets a conflict.
func (a *Agent) acquire(ctx context.Context) (bool, error) {
	locks := a.Client.CoreV1().ConfigMaps(a.Namespace)
	lock, err := locks.Get(ctx, LockName, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("get the lock: %w", err)
	}
	switch holder := lock.Data["holder"]; holder {
	case a.NodeName:
		return true, nil
	case "":
	default:
		_, err := a.Client.CoreV1().Nodes().Get(ctx, holder, metav1.GetOptions{})
		if err == nil {
			klog.FromContext(ctx).Info("Lock already held", "holder", holder)
			return false, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("get the holder of the lock: %w", err)
		}
		klog.FromContext(ctx).Info("Taking the lock of a Node that is gone", "holder", holder)
	}
	lock.Data = map[string]string{"holder": a.NodeName}
	if _, err := locks.Update(ctx, lock, metav1.UpdateOptions{}); err != nil {
		return false, fmt.Errorf("take the lock: %w", err)
	}
	return true, nil
}

// release releases the lock if this Node holds it.
func (a *Agent) release(ctx context.Context) error {
	locks := a.Client.CoreV1().ConfigMaps(a.Namespace)
	lock, err := locks.Get(ctx, LockName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the lock: %w", err)
	}
	if lock.Data["holder"] != a.NodeName {
		return nil
	}
	lock.Data = nil
	if _, err := locks.Update(ctx, lock, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("release the lock: %w", err)
	}
	return nil
}

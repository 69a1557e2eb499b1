// Package writeleaderelection lets one of several replicas work.
package writeleaderelection

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// LeaseName is the name of the Lease that the leader holds.
const LeaseName = "controller"

// The durations of the election.
const (
	LeaseDuration = 15 * time.Second // a candidate that has not seen the Lease change for that long may take it over
	RenewDeadline = 10 * time.Second // a leader that has tried to renew for that long stops to lead
	RetryPeriod   = 2 * time.Second  // the pause between two attempts to acquire or renew the Lease
)

// Run competes for the Lease in the namespace until ctx is cancelled, and calls work while it holds it. The context of
// work ends when work must stop; work returns soon afterwards. The identity differs for each replica.
func Run(ctx context.Context, client kubernetes.Interface, namespace, identity string, work func(ctx context.Context)) error {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: LeaseName},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	for ctx.Err() == nil {
		if err := lead(ctx, lock, work); err != nil {
			return err
		}
	}
	release(context.WithoutCancel(ctx), lock)
	return nil
}

// lead competes for the Lease once, and returns when the Lease has been lost, or ctx is cancelled, and the work has returned. It
// does not let the elector release the Lease: the elector does that when it could not renew, too, before it cancels the context of
// the work, and does not look whose the Lease is by then.
func lead(ctx context.Context, lock resourcelock.Interface, work func(ctx context.Context)) error {
	var working sync.WaitGroup
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: LeaseDuration,
		RenewDeadline: RenewDeadline,
		RetryPeriod:   RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				working.Add(1)
				defer working.Done()
				if leading.Err() == nil {
					work(leading)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	working.Wait()
	return nil
}

// release lets another replica lead at once, if the Lease is still ours. If it fails, the others wait until the Lease expires.
func release(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(ctx, RetryPeriod)
	defer cancel()
	// A renewal that was under way when ctx was cancelled may be stored between Get and Update. That is a conflict.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := lock.Get(ctx)
		if err != nil {
			return err
		}
		if record.HolderIdentity != lock.Identity() {
			return nil
		}
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: record.AcquireTime, RenewTime: record.RenewTime,
		})
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		klog.FromContext(ctx).Info("Could not release the Lease", "lock", lock.Describe(), "err", err)
	}
}

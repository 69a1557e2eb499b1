package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

// release gives up a lock, so that the next controller need not wait until it expires. A lock that somebody else holds by now
// is left alone: this process may have been stopped for longer than its Lease (by SIGSTOP, or on a machine that sleeps).
func release(ctx context.Context, lock resourcelock.Interface) error {
	// A renewal that was cancelled may still reach the API server, and is then a Conflict.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := lock.Get(ctx)
		if err != nil || record.HolderIdentity != lock.Identity() {
			return err
		}
		now := metav1.Now()
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
		})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("release the Lease %s: %w", lock.Describe(), err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

// lease is the lock of an elector that does not release it. The elector uses it from one goroutine at a time, and not at all
// after its Run has returned.
type lease struct {
	resourcelock.Interface
	acquired bool // whether it has ever been ours; then the elector has called OnStartedLeading, or is about to
	lost     bool // whether somebody else has had it since

	fence *fence
	valid time.Duration // how long after a renewal the Lease is certainly ours
}

var errLost = errors.New("another controller has led meanwhile")

func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lost {
		return errLost
	}
	begin := time.Now()
	return l.written(begin, l.Interface.Create(ctx, record))
}

// Update fails if somebody else has had the Lease since we had it, even if it is free again: a controller whose machine has hung
// would go on with what it knew before. The elector ends the leadership, and the process.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lost {
		return errLost
	}
	begin := time.Now()
	return l.written(begin, l.Interface.Update(ctx, record))
}

// Get tells the fence at once if the Lease is somebody else's. The elector ends the leadership only at its renew deadline.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() {
		l.fence.hold(time.Time{})
		l.lost = l.acquired
	}
	return record, raw, err
}

// written notes the result of a write that began then.
func (l *lease) written(begin time.Time, err error) error {
	if err == nil {
		l.acquired = true
		l.fence.hold(begin.Add(l.valid))
	}
	return err
}

// release lets the next one lead at once, unless somebody else already does.
func (l *lease) release(ctx context.Context) error {
	// A renewal whose answer nobody waited for may be written between Get and Update. That is a conflict.
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := l.Get(ctx)
		if err != nil || record.HolderIdentity != l.Identity() {
			return err
		}
		now := metav1.NewTime(time.Now())
		return l.Interface.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
		})
	})
}

package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ownLock is a lock that is released only by its holder. client-go v0.37.1 also releases it for a leader that was stopped
// for longer than its Lease (by SIGSTOP, or a machine that sleeps): before it releases, it compares its identity with the
// holder that it saw last, and not with the one that it has just read. The new leader's Lease would be free at once.
//
// The elector uses its lock from one goroutine at a time.
type ownLock struct {
	resourcelock.Interface
	holder string // as it was read last
}

// Get reads who holds the lock.
func (l *ownLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return record, raw, err
}

// Update writes who holds the lock; "" releases it.
func (l *ownLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && l.holder != "" && l.holder != l.Identity() {
		return fmt.Errorf("not releasing %s, which %s holds", l.Describe(), l.holder)
	}
	err := l.Interface.Update(ctx, record)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return err
}

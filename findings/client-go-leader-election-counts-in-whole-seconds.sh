#!/bin/sh
# k8s.io/client-go v0.37.1, package tools/leaderelection: the durations of its configuration are of type time.Duration, and are checked as
# such (LeaseDuration > RenewDeadline > 1.2 * RetryPeriod), but it counts in whole seconds. LeaseDuration: 1.9 s is written to the Lease
# as 1 second, and the other replicas wait for that long, although the leader goes on until its RenewDeadline of 1.5 s. And another replica
# sees a renewal only if the second of its time is another one: it compares records whose times have no fractions, although the Lease has
# microseconds. So it counts a lease of 2 s from up to 1 s before the last renewal. One would expect that with RenewDeadline < LeaseDuration
# two replicas lead at the same time neither with 1.9 s nor with 2 s; the package mentions clocks that run at different speeds only.
#
# Here, 20 pairs of electors compete, each for a Lease of client-go's fake clientset, in virtual time, with RenewDeadline 1.5 s and
# RetryPeriod 0.2 s, so that a leader goes on for up to 1.7 s. Then the requests of each first one wait until its time is up.
# See tools/leaderelection/leaderelection.go: tryAcquireOrRenew, isLeaseValid; resourcelock/interface.go: LeaderElectionRecord.
#
# Needs Go and access to a module proxy. Ends with status 0 while this is so.
set -eu
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT INT TERM
cd "$dir"
export GOFLAGS=-mod=mod GOWORK=off
cat > go.mod <<'END'
module finding

go 1.26.0

require (
	k8s.io/apimachinery v0.37.1
	k8s.io/client-go v0.37.1
	k8s.io/klog/v2 v2.140.0
)
END
cat > finding_test.go <<'END'
package finding

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

const pairs = 20 // the retries have a random jitter

// slow is a lock whose requests wait from a moment on.
type slow struct {
	resourcelock.Interface
	from time.Time
}

func (s *slow) wait(ctx context.Context) error {
	if time.Now().Before(s.from) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *slow) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := s.wait(ctx); err != nil {
		return nil, nil, err
	}
	return s.Interface.Get(ctx)
}

func (s *slow) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Interface.Update(ctx, r)
}

func TestLease(t *testing.T) {
	for _, duration := range []time.Duration{1900 * time.Millisecond, 2 * time.Second, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Background().V(9)))
			client := fake.NewClientset()
			var mu sync.Mutex
			leads := map[string]int{} // how many, by Lease
			both := map[string]bool{}
			var done sync.WaitGroup
			start := func(lease, name string, hangs time.Duration) {
				elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock: &slow{from: time.Now().Add(hangs), Interface: &resourcelock.LeaseLock{
						LeaseMeta: metav1.ObjectMeta{Namespace: "a", Name: lease}, Client: client.CoordinationV1(),
						LockConfig: resourcelock.ResourceLockConfig{Identity: name},
					}},
					LeaseDuration: duration, RenewDeadline: 1500 * time.Millisecond, RetryPeriod: 200 * time.Millisecond,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(ctx context.Context) {
							mu.Lock()
							leads[lease]++
							if leads[lease] > 1 {
								both[lease] = true
							}
							mu.Unlock()
							<-ctx.Done()
							mu.Lock()
							leads[lease]--
							mu.Unlock()
						},
						OnStoppedLeading: func() {},
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				done.Go(func() { elector.Run(ctx) })
			}
			for pair := range pairs {
				start(fmt.Sprint(pair), "first", 2900*time.Millisecond)
			}
			time.Sleep(500 * time.Millisecond)
			for pair := range pairs {
				start(fmt.Sprint(pair), "second", time.Hour)
			}
			time.Sleep(8 * time.Second)
			lease, err := client.CoordinationV1().Leases("a").Get(ctx, "0", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("LeaseDuration %v: leaseDurationSeconds %d, both lead: %t\n", duration, *lease.Spec.LeaseDurationSeconds, len(both) > 0)
			t.Logf("%d of %d", len(both), pairs)
			cancel()
			done.Wait()
		})
	}
}
END
go test -v -count=1 ./... > log 2>&1 || { cat log >&2; exit 1; }
grep '^LeaseDuration' log > out
cat > want <<'END'
LeaseDuration 1.9s: leaseDurationSeconds 1, both lead: true
LeaseDuration 2s: leaseDurationSeconds 2, both lead: true
LeaseDuration 3s: leaseDurationSeconds 3, both lead: false
END
diff want out

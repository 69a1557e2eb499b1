#!/bin/sh
# k8s.io/client-go v0.37.1, package tools/leaderelection: with ReleaseOnCancel, a leader that could not renew its Lease also
# "releases" it, and does that before it cancels the context of OnStartedLeading. It asks its own last observation whose the Lease
# is, and the API server only for the resourceVersion to write to. So if its connection hangs until another replica leads, it
# clears the holder of the Lease that is the other's by then; meanwhile both lead.
#
# Here, two electors compete for a Lease of client-go's fake clientset, in virtual time. For 18 s, requests of the first one wait.
# In 50 rounds, both is seen with ReleaseOnCancel: true, and neither with false.
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
	k8s.io/api v0.37.1
	k8s.io/apimachinery v0.37.1
	k8s.io/client-go v0.37.1
	k8s.io/klog/v2 v2.140.0
)
END
cat > lease_test.go <<'END'
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

// slow is a lock whose requests wait while its connection hangs.
type slow struct {
	resourcelock.Interface
	mu    sync.Mutex
	until time.Time
}

func (s *slow) hang(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(d)
}

func (s *slow) wait(ctx context.Context) error {
	s.mu.Lock()
	until := s.until
	s.mu.Unlock()
	select {
	case <-time.After(time.Until(until)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
	for _, release := range []bool{true, false} {
		var both, cleared bool // in any of many rounds: the retries have a random jitter
		for range 50 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Background().V(9)))
			client := fake.NewClientset()
			var mu sync.Mutex
			leads := map[string]bool{}
			var done sync.WaitGroup
			start := func(name string) *slow {
				lock := &slow{Interface: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: "a", Name: "a"}, Client: client.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: name},
				}}
				elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: release,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(ctx context.Context) {
							mu.Lock()
							leads[name] = true
							both = both || len(leads) > 1
							mu.Unlock()
							<-ctx.Done()
							mu.Lock()
							delete(leads, name)
							mu.Unlock()
						},
						OnStoppedLeading: func() {},
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				done.Go(func() { elector.Run(ctx) })
				return lock
			}
			first := start("first")
			time.Sleep(time.Second)
			start("second")
			time.Sleep(time.Minute)
			first.hang(18 * time.Second)
			for range 400 {
				time.Sleep(100 * time.Millisecond)
				lease, err := client.CoordinationV1().Leases("a").Get(ctx, "a", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				cleared = cleared || leads["second"] && *lease.Spec.HolderIdentity == ""
				mu.Unlock()
			}
			cancel()
			done.Wait()
		})
		}
		fmt.Printf("ReleaseOnCancel %t: both lead: %t, the Lease of the second is cleared: %t\n", release, both, cleared)
	}
}
END
go test -v -count=1 ./... > out 2> log || { cat out log >&2; exit 1; }
grep '^ReleaseOnCancel' out > got
cat > want <<'END'
ReleaseOnCancel true: both lead: true, the Lease of the second is cleared: true
ReleaseOnCancel false: both lead: false, the Lease of the second is cleared: false
END
diff want got

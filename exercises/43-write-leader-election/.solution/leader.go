// Package writeleaderelection lets one of several replicas work.
package writeleaderelection

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaseName is the name of the Lease that the leader holds.
const LeaseName = "controller"

// The durations of the election.
const (
	LeaseDuration = 15 * time.Second // after its last renewal, a Lease may be taken over
	RenewDeadline = 10 * time.Second // a leader that has tried to renew for that long stops to lead
	RetryPeriod   = 2 * time.Second  // the pause between two attempts to acquire or renew the Lease
)

// Run competes for the Lease in the namespace until ctx is cancelled, and calls work while it holds it. The context of
// work ends when work must stop; work returns soon afterwards. The identity differs for each replica.
func Run(ctx context.Context, client kubernetes.Interface, namespace, identity string, work func(ctx context.Context)) error {
	for ctx.Err() == nil {
		if err := lead(ctx, client, namespace, identity, work); err != nil {
			return err
		}
	}
	return nil
}

// lead competes for the Lease once, and returns when it has been lost or released.
func lead(ctx context.Context, client kubernetes.Interface, namespace, identity string, work func(ctx context.Context)) error {
	// The elector releases the Lease when its context ends. While the work goes on, the Lease must be kept.
	election, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var working sync.WaitGroup
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: LeaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   LeaseDuration,
		RenewDeadline:   RenewDeadline,
		RetryPeriod:     RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				working.Add(1)
				defer working.Done()
				both, cancel := context.WithCancel(leading)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				if both.Err() == nil {
					work(both)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		working.Wait()
		stop()
	})()
	elector.Run(election)
	working.Wait()
	return nil
}

// Package writeleaderelection lets one of several replicas work.
package writeleaderelection

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
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
	// Write me. Until then, all replicas work.
	work(ctx)
	return nil
}

package main

import (
	"context"
	"fmt"
	"slices"

	"example.com/controllers/reboot/protocol"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// leaseName returns the name of the Lease of the controllers that share a ledger. With a ledger of another name than the
// default, a controller does not wait for those that have nothing to do with it.
func leaseName(ledger string) string {
	const name = "reboot-controller"
	if ledger == defaultLedger {
		return name
	}
	return name + "." + ledger
}

// compareFlags warns if the leader has other limits than this controller, which waits for it: perhaps the two are not meant to
// be replicas. During a rollout, they differ for a moment.
func (f *controllerFlags) compareFlags(ctx context.Context, client kubernetes.Interface) {
	configMap, err := client.CoreV1().ConfigMaps(f.options.Namespace).Get(ctx, f.options.Ledger, metav1.GetOptions{})
	if err != nil {
		return // there is no ledger yet, or the leader has the same problem and says so
	}
	var differ []string
	for name, value := range protocol.SettingsOf(configMap).Flags {
		own, known := f.values[name]
		if known && own != value && name != "own-node" {
			differ = append(differ, fmt.Sprintf("--%s is %q there and %q here", name, value, own))
		}
	}
	if len(differ) > 0 {
		slices.Sort(differ)
		klog.FromContext(ctx).Info("Waiting for a leader with other flags; if this controller is for other Nodes, give it another --ledger", "ledger", f.options.Ledger, "differences", differ)
	}
}

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

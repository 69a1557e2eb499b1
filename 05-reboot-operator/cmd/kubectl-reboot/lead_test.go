package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/reboot"
	"example.com/controllers/reboot/policy"
	"example.com/controllers/reboot/protocol"
)

// leader is a controller that runs with a Lease, in virtual time.
type leader struct {
	client     *fake.Clientset
	controller *reboot.Controller
	stop       context.CancelFunc
	ended      chan error
	// refuse makes each update of the Lease fail with a Conflict, as it does for a Lease that another controller has written.
	refuse atomic.Bool
	// renewalsFail makes each update of the Lease fail that does not release it.
	renewalsFail atomic.Bool
	// finishing is how long, in nanoseconds, the controller's work goes on when it is told to stop.
	finishing atomic.Int64
}

// startLeader starts a controller and waits until it leads.
func startLeader(t *testing.T) *leader {
	l := &leader{client: fake.NewClientset(ledger("reboot"), node("a")), ended: make(chan error, 1)}
	l.client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if l.refuse.Load() {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), "reboot-controller", errors.New("changed"))
		}
		holder := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease).Spec.HolderIdentity
		if l.renewalsFail.Load() && holder != nil && *holder != "" {
			return true, nil, apierrors.NewInternalError(errors.New("the database is slow"))
		}
		return false, nil, nil
	})
	f := &controllerFlags{leaseDuration: 15 * time.Second, options: reboot.Options{
		Policy:    policy.Policy{MaxUnavailable: intstr.FromInt32(1), MaxPerDomain: intstr.FromInt32(1), Selector: labels.Everything()},
		Namespace: "reboot", Ledger: "reboot-ledger",
		DrainTimeout: time.Hour, AgentTimeout: time.Hour, RebootTimeout: time.Hour, RetryInterval: time.Minute, MaxRetryInterval: time.Hour,
		Workers: 2, Backoff: time.Second, MaxBackoff: time.Minute, Grace: 5 * time.Second,
	}}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	var err error
	l.controller, err = reboot.New(ctx, l.client, f.options)
	require.NoError(t, err)
	go func() {
		l.ended <- f.lead(ctx, contextual{l.client}, func(ctx context.Context) error {
			defer func() { time.Sleep(time.Duration(l.finishing.Load())) }()
			return f.publishAndRun(ctx, l.client, l.controller)
		})
	}()
	l.advance(5 * time.Second)
	require.True(t, l.isReady())
	return l
}

func (l *leader) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *leader) isReady() bool { return l.controller.Ready() }

// lease returns the Lease and its holder.
func (l *leader) lease(t *testing.T) (*coordinationv1.Lease, string) {
	lease, err := l.client.CoordinationV1().Leases("reboot").Get(context.Background(), "reboot-controller", metav1.GetOptions{})
	require.NoError(t, err)
	return lease, *lease.Spec.HolderIdentity
}

// A controller that has lost its Lease ends: it admits nothing any more, and leaves the Lease to the next one.
func TestTheControllerEndsWhenItLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLeader(t)
		defer l.stop()
		lease, _ := l.lease(t)
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("another"), new(metav1.NowMicro())
		_, err := l.client.CoordinationV1().Leases("reboot").Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(t, err)
		l.refuse.Store(true)
		l.advance(20 * time.Second)
		require.False(t, l.isReady())
		node, err := l.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, protocol.NeededAnnotation, "")
		_, err = l.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		l.advance(time.Minute)
		node, err = l.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, protocol.Needed, protocol.PhaseOf(node))
		select {
		case err := <-l.ended:
			require.ErrorContains(t, err, "lost the Lease to another controller, or could not renew it")
		default:
			require.Fail(t, "it has not ended")
		}
		_, holder := l.lease(t)
		require.Equal(t, "another", holder)
	})
}

// A controller keeps its Lease while it finishes its work, whatever ends it: otherwise the next one would work beside it.
func TestTheLeaseIsKeptUntilTheWorkHasEnded(t *testing.T) {
	for name, c := range map[string]struct{ stop, renewalsFail bool }{
		"it is told to stop":                             {stop: true},
		"it cannot renew the Lease":                      {renewalsFail: true},
		"it is told to stop, and cannot renew the Lease": {stop: true, renewalsFail: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := startLeader(t)
				defer l.stop()
				l.finishing.Store(int64(time.Minute))
				l.renewalsFail.Store(c.renewalsFail)
				if c.stop {
					l.stop()
				}
				l.advance(30 * time.Second)
				require.False(t, l.isReady())
				lease, holder := l.lease(t)
				require.NotEmpty(t, holder)
				if !c.renewalsFail {
					require.Less(t, time.Since(lease.Spec.RenewTime.Time), 15*time.Second, "nobody else may take it")
				}
				require.Empty(t, l.ended)
				l.advance(time.Minute)
				err := <-l.ended
				if c.stop {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "could not renew it")
				}
				_, holder = l.lease(t)
				require.Empty(t, holder)
			})
		})
	}
}

// A controller that is told to stop releases its Lease, so that the next one need not wait until it expires.
func TestTheControllerReleasesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLeader(t)
		_, holder := l.lease(t)
		require.NotEmpty(t, holder)
		l.stop()
		l.advance(time.Second)
		require.False(t, l.isReady())
		require.NoError(t, <-l.ended)
		_, holder = l.lease(t)
		require.Empty(t, holder)
	})
}

// Lease-release-stale cuts a leader off from the API server until another candidate leads, and then ends it with ReleaseOnCancel.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"example.com/controllers/guesses/internal/client"
)

// suspension holds back the requests of a candidate while it is locked.
type suspension struct {
	sync.RWMutex
	next http.RoundTripper
}

func (s *suspension) RoundTrip(request *http.Request) (*http.Response, error) {
	s.RLock()
	defer s.RUnlock()
	return s.next.RoundTrip(request)
}

func main() {
	klog.SetLogger(klog.Logger{})
	ctx := context.Background()
	leases := kubernetes.NewForConfigOrDie(client.Config()).CoordinationV1().Leases(client.Namespace())
	show := func(when string) {
		lease, err := leases.Get(ctx, "leader", metav1.GetOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: the holder is %q, leaseTransitions %d\n", when, *lease.Spec.HolderIdentity, *lease.Spec.LeaseTransitions)
	}
	var a, b suspension
	contextA, cancelA := context.WithCancel(ctx)
	leadsA, endedA := run(contextA, "a", &a)
	<-leadsA
	a.Lock()
	leadsB, endedB := run(ctx, "b", &b)
	<-leadsB
	b.Lock()
	show("a is suspended, and b leads")

	cancelA()
	a.Unlock()
	<-endedA
	show("a has ended, and b leads")
	select {
	case <-endedB:
		log.Fatal("b has stopped leading")
	default:
	}
}

// run starts a candidate. It returns a channel that is closed when it leads, and one that is closed when it has ended.
func run(ctx context.Context, identity string, suspension *suspension) (leads, ended chan struct{}) {
	config := rest.CopyConfig(client.Config())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		suspension.next = next
		return suspension
	})
	leads, ended = make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: client.Namespace(), Name: "leader"},
			Client:     kubernetes.NewForConfigOrDie(config).CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   4 * time.Second,
		RenewDeadline:   3 * time.Second,
		RetryPeriod:     time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leads) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		defer close(ended)
		elector.Run(ctx)
	}()
	return leads, ended
}

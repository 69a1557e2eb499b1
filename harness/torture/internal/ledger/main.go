// Program ledger is a controller for torture's own tests. Its replicas elect a leader, which counts the entries, the
// ConfigMaps with the label ledger=entry, and writes their number into the ConfigMap "total".
//
// The leader's write is fenced: it has the resourceVersion that the leader had read before it counted. If another leader has
// written since, the API server answers 409, and the leader steps down. With BUG=no-fencing in its environment, the write
// has no resourceVersion, so a leader that was frozen and replaced overwrites what its successor wrote.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// total is the name of the ConfigMap whose data.count is the number of entries.
const total = "total"

type ledger struct {
	client    kubernetes.Interface
	namespace string
	changed   chan struct{} // has an element if a ConfigMap has changed since the last count
	isFenced  bool
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig")
	namespace := flag.String("namespace", "", "namespace of the entries")
	identity := flag.String("identity", "", "name of this replica in the Lease")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
	config.QPS = -1 // a renewal of the Lease must not wait for the rate limiter
	client := kubernetes.NewForConfigOrDie(config)
	l := &ledger{client, *namespace, make(chan struct{}, 1), os.Getenv("BUG") != "no-fencing"}
	l.watch(ctx)
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: *namespace, Name: "ledger"}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
	}
	for ctx.Err() == nil {
		l.lead(ctx, lock)
	}
}

// watch notes in l.changed that a ConfigMap has changed.
func (l *ledger) watch(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithNamespace(l.namespace))
	_, _ = factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { l.notify() }, UpdateFunc: func(any, any) { l.notify() },
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

func (l *ledger) notify() {
	select {
	case l.changed <- struct{}{}:
	default: // the next count includes this change too
	}
}

// lead waits until this replica is elected, and counts until it is no longer the leader or ctx ends.
func (l *ledger) lead(ctx context.Context, lock resourcelock.Interface) {
	ctx, stepDown := context.WithCancel(ctx)
	defer stepDown()
	elected, over := make(chan context.Context, 1), make(chan struct{})
	go func() {
		defer close(over)
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			// Without ReleaseOnCancel: with it, a leader that was frozen and replaced releases its successor's Lease.
			Lock: lock, LeaseDuration: 5 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 500 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(leading context.Context) { elected <- leading }, OnStoppedLeading: func() {},
			},
		})
	}()
	select {
	case leading := <-elected:
		l.keep(leading)
		stepDown()
	case <-over:
	}
	<-over
}

// keep counts the entries whenever a ConfigMap changes, until ctx ends or another leader has written the total.
func (l *ledger) keep(ctx context.Context) {
	l.notify()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
		for delay := 100 * time.Millisecond; ctx.Err() == nil; delay = min(2*delay, 2*time.Second) {
			err := l.count(context.WithoutCancel(ctx)) // in-flight requests are finished
			if err == nil {
				break
			}
			fmt.Fprintln(os.Stderr, "ledger:", err)
			if apierrors.IsConflict(err) {
				fmt.Fprintln(os.Stderr, "ledger: another leader has written the total; stepping down")
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(delay):
			}
		}
	}
}

// count counts the entries and writes the total if it is another one.
func (l *ledger) count(ctx context.Context) error {
	configMaps := l.client.CoreV1().ConfigMaps(l.namespace)
	written, err := configMaps.Get(ctx, total, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the total: %w", err)
	}
	entries, err := configMaps.List(ctx, metav1.ListOptions{LabelSelector: "ledger=entry"})
	if err != nil {
		return fmt.Errorf("list the entries: %w", err)
	}
	count := strconv.Itoa(len(entries.Items))
	if written.Data["count"] == count {
		return nil
	}
	written.Data = map[string]string{"count": count}
	if !l.isFenced {
		written.ResourceVersion = ""
	}
	if _, err := configMaps.Update(ctx, written, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the total: %w", err)
	}
	return nil
}

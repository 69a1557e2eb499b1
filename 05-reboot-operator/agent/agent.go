// Package agent is what runs on each machine: it reboots the machine when the controller has approved that, and proves by the
// boot ID that it did.
package agent

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"example.com/controllers/reboot/protocol"
)

// Agent reboots the machine that it runs on, when the controller has approved it. Run must be called at most once.
type Agent struct {
	Options
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	Nodes   coreinformers.TypedNodeInformer
	lister  listers.NodeLister
	Queue   workqueue.TypedRateLimitingInterface[string]
	// asked is when the machine was last asked to reboot, as far as this process knows; zero if it was not.
	asked          time.Time
	sentinelFailed string // what the last Event about the sentinel said; "" once it works
	recorder       events.EventRecorder
	Broadcaster    events.EventBroadcaster
	ready          atomic.Bool
}

// New returns an agent that makes no request before Run is called. It sees no Node but its own.
func New(ctx context.Context, client kubernetes.Interface, options Options) (*Agent, error) {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(protocol.Strip),
		informers.WithTweakListOptions(func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, options.NodeName).String()
		}))
	a := &Agent{
		Options: options,
		client:  client,
		factory: factory,
		Nodes:   factory.Core().V1().Nodes(),
		Queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](options.Backoff, options.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "node"}),
		Broadcaster: events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}),
	}
	a.lister = a.Nodes.Lister()
	a.recorder = protocol.NewRecorder(a.Broadcaster, "reboot-agent")
	// The agent's work may be pending when it starts: an add event counts like any other.
	_, err := a.Nodes.TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc:    func(node *corev1.Node) { a.Queue.Add(node.Name) },
		UpdateFunc: func(_, node *corev1.Node) { a.Queue.Add(node.Name) },
	}, cache.HandlerOptions{Logger: &logger})
	return a, err
}

// Ready reports whether the cache has synced and shutdown has not begun.
func (a *Agent) Ready() bool { return a.ready.Load() }

// Run works until ctx is cancelled, and returns when no goroutine of the agent is left. It waits for an API server that does
// not answer, because the reboot that the agent has to complete may be the reason.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.Broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start recording Events: %w", err)
	}
	defer a.Broadcaster.Shutdown()
	a.factory.StartWithContext(ctx)
	defer a.factory.Shutdown()
	defer a.Queue.ShutDown()
	if err := a.factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil // ctx was cancelled first
	}
	a.ready.Store(true)
	klog.FromContext(ctx).Info("Cache synced", "node", a.NodeName)
	a.asked = time.Now() // the previous process may have asked just now
	var goroutines sync.WaitGroup
	goroutines.Go(func() {
		for a.processNextWorkItem(ctx) {
		}
	})
	if a.Sentinel != nil {
		goroutines.Go(func() { a.Sentinel.Watch(ctx, func() { a.Queue.Add(a.NodeName) }) })
	}
	<-ctx.Done()
	a.ready.Store(false)
	a.Queue.ShutDown()
	goroutines.Wait()
	klog.FromContext(ctx).Info("Stopped")
	return nil
}

func (a *Agent) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := a.Queue.Get()
	if shutdown {
		return false
	}
	defer a.Queue.Done(key)
	again, err := a.Reconcile(ctx)
	if err != nil {
		if !apierrors.IsConflict(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed, requeueing with backoff", "failures", a.Queue.NumRequeues(key)+1)
		}
		a.Queue.AddRateLimited(key)
		return true
	}
	a.Queue.Forget(key)
	if again > 0 {
		a.Queue.AddAfter(key, again)
	}
	return true
}

// Reconcile does what the Node's annotations ask of this machine. Calling it again does no more.
func (a *Agent) Reconcile(ctx context.Context) (again time.Duration, err error) {
	node, err := a.lister.Get(a.NodeName)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	phase := protocol.PhaseOf(node)
	begins := phase == protocol.Approved && node.Spec.Unschedulable
	if begins {
		if node, err = a.begin(ctx, node); err != nil {
			return 0, err
		}
	}
	if begins || phase == protocol.InProgress {
		return a.reboot(ctx, node, begins)
	}
	if a.Sentinel != nil {
		again = a.Sentinel.Interval
	}
	return again, a.request(ctx, node)
}

// begin records the boot ID, so that the agent that runs after the reboot can tell that there was one.
func (a *Agent) begin(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	bootID, err := a.BootID.Read(ctx)
	if err != nil {
		return nil, err
	}
	node, err = protocol.Write(ctx, a.client, node, protocol.NewChange().Remove(protocol.NowAnnotation).
		Set(protocol.InProgressAnnotation, bootID).Set(protocol.SinceAnnotation, protocol.FormatTime(time.Now())))
	if err == nil {
		a.asked = time.Time{}
	}
	return node, err
}

// reboot reboots the machine, unless it has been rebooted since the boot ID was recorded. The Node is current if it was just
// written; otherwise it is from the cache.
func (a *Agent) reboot(ctx context.Context, node *corev1.Node, current bool) (again time.Duration, err error) {
	before := node.Annotations[protocol.InProgressAnnotation]
	if _, admitted := node.Annotations[protocol.AdmittedAnnotation]; !admitted {
		return 0, a.clear(ctx, node)
	}
	bootID, err := a.BootID.Read(ctx)
	if err != nil {
		return 0, err
	}
	if bootID != before {
		return 0, a.complete(ctx, node, before, bootID)
	}
	// The process that recorded the boot ID may have died before it asked for the reboot, so ask again. But give the machine
	// time to go down, and its kubelet time to report the new boot ID, so that the machine does not reboot twice.
	if wait := a.RebootRetry - time.Since(a.asked); !a.asked.IsZero() && wait > 0 {
		return wait, nil
	}
	// A stale cache may not show that somebody has given up on the reboot, and that Pods are running on the Node again.
	if !current {
		if inProgress, err := a.isStillInProgress(ctx, node); err != nil || !inProgress {
			return a.RebootRetry, err
		}
	}
	klog.FromContext(ctx).Info("Rebooting", "bootID", bootID)
	if err := a.Rebooter.Reboot(ctx); err != nil {
		a.recorder.Eventf(node, nil, corev1.EventTypeWarning, "RebootFailed", "Reboot", "Cannot reboot the machine: %v", err)
		return 0, fmt.Errorf("reboot the machine: %w", err)
	}
	a.asked = time.Now()
	return a.RebootRetry, nil
}

// isStillInProgress asks the API server whether a reboot that the cache shows is still in progress, and the Node still
// cordoned: one that somebody uncordoned may have Pods that were not evicted.
func (a *Agent) isStillInProgress(ctx context.Context, cached *corev1.Node) (bool, error) {
	node, err := a.client.CoreV1().Nodes().Get(ctx, a.NodeName, metav1.GetOptions{})
	if err != nil {
		return false, protocol.IgnoreNotFound(err)
	}
	return node.UID == cached.UID && protocol.PhaseOf(node) == protocol.InProgress && node.Spec.Unschedulable &&
		node.Annotations[protocol.InProgressAnnotation] == cached.Annotations[protocol.InProgressAnnotation], nil
}

// clear removes a reboot-in-progress that no agent wrote: the Node was never admitted, and perhaps not drained.
func (a *Agent) clear(ctx context.Context, node *corev1.Node) error {
	if _, err := protocol.Write(ctx, a.client, node, protocol.NewChange().Remove(protocol.InProgressAnnotation, protocol.SinceAnnotation)); err != nil {
		return err
	}
	a.recorder.Eventf(node, nil, corev1.EventTypeWarning, "RebootRefused", "Reboot", "Removed %s: the Node was not admitted", protocol.InProgressAnnotation)
	return nil
}

// complete ends a reboot: it frees the slot, and uncordons the Node if the controller had cordoned it.
func (a *Agent) complete(ctx context.Context, node *corev1.Node, before, after string) error {
	now := time.Now()
	took := now.Sub(protocol.TimeOf(node, protocol.SinceAnnotation)).Round(time.Second)
	done := protocol.End(node, now).Remove(protocol.FailuresAnnotation, protocol.RetryAfterAnnotation).
		Set(protocol.RebootedAnnotation, protocol.FormatTime(now))
	stillAsks := false
	if a.Sentinel != nil {
		why, asks, err := a.Sentinel.Check(ctx)
		if err != nil { // if it asks later, that may be what it asked for before the reboot
			klog.FromContext(ctx).Error(err, "Cannot tell whether the machine needs another reboot")
			done = done.Set(protocol.SentinelIgnoredAnnotation, "the check after the reboot failed")
		} else if asks {
			done, stillAsks = done.Set(protocol.SentinelIgnoredAnnotation, why), true
		}
	}
	if _, err := protocol.Write(ctx, a.client, node, done); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Rebooted", "bootIDBefore", before, "bootID", after, "took", took)
	a.recorder.Eventf(node, nil, corev1.EventTypeNormal, "Rebooted", "Reboot", "Rebooted in %s: the boot ID was %s and is %s", took, before, after)
	if stillAsks {
		a.recorder.Eventf(node, nil, corev1.EventTypeWarning, "RebootDidNotHelp", "Reboot", "The machine still asks for a reboot; ignored until it stops asking")
	}
	return nil
}

// request asks for a reboot if the sentinel does. A machine without a sentinel never asks.
func (a *Agent) request(ctx context.Context, node *corev1.Node) (err error) {
	var why string
	asks := false
	if a.Sentinel != nil {
		if why, asks, err = a.Sentinel.Check(ctx); err != nil {
			a.tellSentinelFailed(node, err)
			return err
		}
		a.sentinelFailed = ""
	}
	_, ignored := node.Annotations[protocol.SentinelIgnoredAnnotation]
	switch {
	case ignored && !asks:
		_, err = protocol.Write(ctx, a.client, node, protocol.NewChange().Remove(protocol.SentinelIgnoredAnnotation))
		return err
	case ignored || !asks || protocol.PhaseOf(node) != protocol.Idle:
		return nil
	}
	if _, err = protocol.Write(ctx, a.client, node, protocol.NewChange().Set(protocol.NeededAnnotation, why)); err != nil {
		return err
	}
	a.recorder.Eventf(node, nil, corev1.EventTypeNormal, "RebootNeeded", "Reboot", "The machine asks for a reboot: %s", why)
	return nil
}

// tellSentinelFailed says that nobody knows whether the machine asks for a reboot, unless that has been said. The check is
// repeated, and an Event that differs in nothing but its text would be counted as the one before.
func (a *Agent) tellSentinelFailed(node *corev1.Node, err error) {
	if a.sentinelFailed != err.Error() {
		a.sentinelFailed = err.Error()
		a.recorder.Eventf(node, nil, corev1.EventTypeWarning, "SentinelFailed", "Check", "Cannot tell whether the machine asks for a reboot: %v", err)
	}
}

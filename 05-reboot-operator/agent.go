package reboot

import (
	"context"
	"errors"
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
)

// AgentOptions configure an Agent.
type AgentOptions struct {
	NodeName string // of the Node that this machine is
	BootID   BootIDSource
	Rebooter Rebooter
	Sentinel *Sentinel // nil if the machine itself cannot ask for a reboot
	// RebootRetry is how long the agent waits for the machine to go down before it asks for the reboot again.
	RebootRetry time.Duration
	Backoff     time.Duration // delay before the first retry of a request; doubles with each further failure
	MaxBackoff  time.Duration // upper bound of that delay
}

// Validate returns an error that names the first invalid option and its allowed values.
func (o AgentOptions) Validate() error {
	switch {
	case o.NodeName == "":
		return errors.New("--node-name is missing, and so is NODE_NAME in the environment; in a Pod, set it from spec.nodeName")
	case o.RebootRetry <= 0:
		return fmt.Errorf("--reboot-retry is %s; it must be greater than 0", o.RebootRetry)
	case o.Backoff <= 0:
		return fmt.Errorf("--backoff is %s; it must be greater than 0", o.Backoff)
	case o.MaxBackoff < o.Backoff:
		return fmt.Errorf("--max-backoff is %s; it must be at least --backoff, which is %s", o.MaxBackoff, o.Backoff)
	}
	return nil
}

// Agent reboots the machine that it runs on, when the controller has approved it. Run must be called at most once.
type Agent struct {
	AgentOptions
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	nodes   coreinformers.TypedNodeInformer
	lister  listers.NodeLister
	queue   workqueue.TypedRateLimitingInterface[string]
	// asked is when the machine was last asked to reboot, as far as this process knows; zero if it was not.
	asked       time.Time
	recorder    events.EventRecorder
	broadcaster events.EventBroadcaster
	ready       atomic.Bool
}

// NewAgent returns an agent that makes no request before Run is called. It sees no Node but its own.
func NewAgent(ctx context.Context, client kubernetes.Interface, options AgentOptions) (*Agent, error) {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(strip),
		informers.WithTweakListOptions(func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, options.NodeName).String()
		}))
	a := &Agent{
		AgentOptions: options,
		client:       client,
		factory:      factory,
		nodes:        factory.Core().V1().Nodes(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](options.Backoff, options.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "node"}),
		broadcaster: events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}),
	}
	a.lister = a.nodes.Lister()
	a.recorder = newRecorder(a.broadcaster, "reboot-agent")
	// The agent's work may be pending when it starts: an add event counts like any other.
	_, err := a.nodes.TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc:    func(node *corev1.Node) { a.queue.Add(node.Name) },
		UpdateFunc: func(_, node *corev1.Node) { a.queue.Add(node.Name) },
	}, cache.HandlerOptions{Logger: &logger})
	return a, err
}

// Run works until ctx is cancelled, and returns when no goroutine of the agent is left. It waits for an API server that does
// not answer, because the reboot that the agent has to complete may be the reason.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start recording Events: %w", err)
	}
	defer a.broadcaster.Shutdown()
	a.factory.StartWithContext(ctx)
	defer a.factory.Shutdown()
	defer a.queue.ShutDown()
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
		goroutines.Go(func() { a.Sentinel.Watch(ctx, func() { a.queue.Add(a.NodeName) }) })
	}
	<-ctx.Done()
	a.ready.Store(false)
	a.queue.ShutDown()
	goroutines.Wait()
	klog.FromContext(ctx).Info("Stopped")
	return nil
}

func (a *Agent) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := a.queue.Get()
	if shutdown {
		return false
	}
	defer a.queue.Done(key)
	again, err := a.reconcile(ctx)
	if err != nil {
		if !apierrors.IsConflict(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed, requeueing with backoff", "failures", a.queue.NumRequeues(key)+1)
		}
		a.queue.AddRateLimited(key)
		return true
	}
	a.queue.Forget(key)
	if again > 0 {
		a.queue.AddAfter(key, again)
	}
	return true
}

// reconcile does what the Node's annotations ask of this machine. Calling it again does no more.
func (a *Agent) reconcile(ctx context.Context) (again time.Duration, err error) {
	node, err := a.lister.Get(a.NodeName)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	phase := PhaseOf(node)
	begins := phase == Approved && node.Spec.Unschedulable
	if begins {
		if node, err = a.begin(ctx, node); err != nil {
			return 0, err
		}
	}
	if begins || phase == InProgress {
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
	node, err = write(ctx, a.client, node, newChange().remove(NowAnnotation).
		set(InProgressAnnotation, bootID).set(SinceAnnotation, formatTime(time.Now())))
	if err == nil {
		a.asked = time.Time{}
	}
	return node, err
}

// reboot reboots the machine, unless it has been rebooted since the boot ID was recorded. The Node is current if it was just
// written; otherwise it is from the cache.
func (a *Agent) reboot(ctx context.Context, node *corev1.Node, current bool) (again time.Duration, err error) {
	before := node.Annotations[InProgressAnnotation]
	if _, admitted := node.Annotations[AdmittedAnnotation]; !admitted {
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
		return false, ignoreNotFound(err)
	}
	return node.UID == cached.UID && PhaseOf(node) == InProgress && node.Spec.Unschedulable &&
		node.Annotations[InProgressAnnotation] == cached.Annotations[InProgressAnnotation], nil
}

// clear removes a reboot-in-progress that no agent wrote: the Node was never admitted, and perhaps not drained.
func (a *Agent) clear(ctx context.Context, node *corev1.Node) error {
	if _, err := write(ctx, a.client, node, newChange().remove(InProgressAnnotation, SinceAnnotation)); err != nil {
		return err
	}
	a.recorder.Eventf(node, nil, corev1.EventTypeWarning, "RebootRefused", "Reboot", "Removed %s: the Node was not admitted", InProgressAnnotation)
	return nil
}

// complete ends a reboot: it frees the slot, and uncordons the Node if the controller had cordoned it.
func (a *Agent) complete(ctx context.Context, node *corev1.Node, before, after string) error {
	now := time.Now()
	took := now.Sub(timeOf(node, SinceAnnotation)).Round(time.Second)
	done := end(node, now).remove(FailuresAnnotation, RetryAfterAnnotation)
	stillAsks := false
	if a.Sentinel != nil {
		why, asks, err := a.Sentinel.Check(ctx)
		if err != nil { // if it asks later, that may be what it asked for before the reboot
			klog.FromContext(ctx).Error(err, "Cannot tell whether the machine needs another reboot")
			done = done.set(SentinelIgnoredAnnotation, "the check after the reboot failed")
		} else if asks {
			done, stillAsks = done.set(SentinelIgnoredAnnotation, why), true
		}
	}
	if _, err := write(ctx, a.client, node, done); err != nil {
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
			return err
		}
	}
	_, ignored := node.Annotations[SentinelIgnoredAnnotation]
	switch {
	case ignored && !asks:
		_, err = write(ctx, a.client, node, newChange().remove(SentinelIgnoredAnnotation))
		return err
	case ignored || !asks || PhaseOf(node) != Idle:
		return nil
	}
	if _, err = write(ctx, a.client, node, newChange().set(NeededAnnotation, why)); err != nil {
		return err
	}
	a.recorder.Eventf(node, nil, corev1.EventTypeNormal, "RebootNeeded", "Reboot", "The machine asks for a reboot: %s", why)
	return nil
}

// Package reboot reboots the Nodes of a cluster one after another. It has two parts that talk to each other through
// annotations of the Nodes, see [PhaseOf]: one [Controller] for the cluster, which decides which Node may reboot next and
// drains it, and on each Node an [Agent], which reboots the machine and proves that it did.
//
//   - The controller never makes more Nodes unavailable than [Policy] allows, even if two controllers are active.
//   - Every process may be killed between any two requests. The annotations hold all that its successor needs.
//   - A reboot is over when the boot ID has changed, and not before.
//   - A Node that somebody else cordoned stays cordoned.
package reboot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// settleInterval is the time between two looks at the ledger while it has entries of Nodes that the API server does not let us
// change. Any change of such a Node frees its slot, such as a heartbeat, which is no reason to decide again otherwise.
const settleInterval = 30 * time.Second

// admission is the key of the decision which Nodes to admit. All other keys are names of Nodes.
const admission = ""

// Controller admits and drains Nodes. Run must be called at most once.
type Controller struct {
	Options
	client   kubernetes.Interface
	nodes    coreinformers.TypedNodeInformer
	lister   listers.NodeLister
	blockers listers.PodLister // nil if no Pods block reboots
	drainer  *drainer
	factory  []informers.SharedInformerFactory
	queue    workqueue.TypedRateLimitingInterface[string]

	recorder    events.EventRecorder
	broadcaster events.EventBroadcaster
	told        *told                // the last Events about each Node, which are not repeated
	refused     map[string]time.Time // see [State.Refused]; of the worker that decides
	metrics     *metrics
	ready       atomic.Bool
}

// New returns a controller that makes no request before Run is called.
func New(ctx context.Context, client kubernetes.Interface, options Options) (*Controller, error) {
	logger := klog.FromContext(ctx)
	nodeFactory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(strip))
	ledgerFactory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(options.Namespace),
		informers.WithTweakListOptions(func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, options.Ledger).String()
		}))
	c := &Controller{
		Options: options,
		client:  client,
		nodes:   nodeFactory.Core().V1().Nodes(),
		drainer: newDrainer(client, options),
		factory: []informers.SharedInformerFactory{nodeFactory, ledgerFactory},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](options.Backoff, options.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "nodes"}),
		broadcaster: events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}),
		told:        newTold(),
		refused:     map[string]time.Time{},
	}
	c.lister = c.nodes.Lister()
	c.metrics = newMetrics(c.lister)
	c.recorder = newRecorder(c.broadcaster, "reboot-controller")

	_, err := c.nodes.TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc: func(node *corev1.Node) { c.enqueue(node.Name) },
		UpdateFunc: func(old, node *corev1.Node) {
			c.metrics.observe(old, node)
			if concerns(old, node) {
				c.enqueue(node.Name)
			}
		},
		DeleteFunc: func(node coreinformers.DeletedNode) { c.enqueue(node.GetObjectName().Name) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, err
	}
	decide := func(any) { c.queue.Add(admission) }
	_, err = ledgerFactory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: decide, UpdateFunc: func(_, configMap any) { decide(configMap) }, DeleteFunc: decide,
	})
	if err != nil || options.BlockingPods == nil {
		return c, err
	}
	podFactory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(list *metav1.ListOptions) {
		list.LabelSelector = options.BlockingPods.String()
	}))
	c.factory, c.blockers = append(c.factory, podFactory), podFactory.Core().V1().Pods().Lister()
	_, err = podFactory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: decide, UpdateFunc: func(_, pod any) { decide(pod) }, DeleteFunc: decide,
	})
	return c, err
}

// strip removes what the controller does not read from a Node before it is cached: mostly the list of images.
func strip(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status = corev1.NodeStatus{Conditions: node.Status.Conditions, NodeInfo: node.Status.NodeInfo}
	}
	return object, nil
}

// concerns reports whether an update changes what the controller reads. Most updates do not: they are heartbeats of the
// kubelet.
func concerns(old, node *corev1.Node) bool {
	return isReady(old) != isReady(node) || old.Spec.Unschedulable != node.Spec.Unschedulable || old.UID != node.UID ||
		!maps.Equal(old.Annotations, node.Annotations) || !maps.Equal(old.Labels, node.Labels)
}

// enqueue adds a Node to the queue. What changes on one Node may free a slot for another.
func (c *Controller) enqueue(name string) {
	c.queue.Add(name)
	c.queue.Add(admission)
}

// Run works until ctx is cancelled, and returns when no goroutine of the controller is left.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	// In-flight work may continue for Grace after ctx is cancelled.
	workCtx, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelWork()
	if err := c.broadcaster.StartRecordingToSinkWithContext(workCtx); err != nil {
		return fmt.Errorf("start recording Events: %w", err)
	}
	defer c.broadcaster.Shutdown()
	for _, factory := range c.factory {
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
	}
	for _, factory := range c.factory {
		if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			c.queue.ShutDown()
			return nil // ctx was cancelled first
		}
	}
	c.ready.Store(true)
	logger.Info("Caches synced", "workers", c.Workers)
	var workers sync.WaitGroup
	for range c.Workers {
		workers.Go(func() {
			for c.processNextWorkItem(workCtx) {
			}
		})
	}
	<-ctx.Done()
	c.ready.Store(false)
	timer := time.AfterFunc(c.Grace, cancelWork)
	defer timer.Stop()
	c.queue.ShutDownWithDrain()
	c.queue.ShutDown() // drops the keys whose delay is not over
	workers.Wait()
	logger.Info("Stopped")
	return nil
}

// processNextWorkItem handles the next key. It returns false when the queue is shut down and empty.
func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key) // until then, no other worker gets the key: decisions are made one at a time
	var again time.Duration
	var err error
	if key == admission {
		again, err = c.admit(ctx)
	} else {
		ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "node", key))
		again, err = c.reconcile(ctx, key)
	}
	switch {
	case err == nil:
		c.queue.Forget(key)
		if again > 0 {
			c.queue.AddAfter(key, again)
		}
	case utilerrors.FilterOut(err, apierrors.IsConflict) == nil:
		// The object has changed since it was read. The watch delivers the new version, or has delivered it already.
		klog.FromContext(ctx).V(2).Info("Conflict, requeueing with backoff", "err", err)
		c.queue.AddRateLimited(key)
	default:
		klog.FromContext(ctx).Error(err, "Failed, requeueing with backoff", "key", key, "failures", c.queue.NumRequeues(key)+1)
		c.queue.AddRateLimited(key)
	}
	return true
}

// admit admits as many Nodes as there are free slots. again is the delay until the decision may change without an event; 0
// if it cannot.
func (c *Controller) admit(ctx context.Context) (again time.Duration, err error) {
	maps.DeleteFunc(c.refused, func(_ string, retry time.Time) bool { return !time.Now().Before(retry) })
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return 0, err
	}
	if again, any := c.decide(State{Nodes: nodes}, func(*corev1.Node) {}); !any {
		return again, nil // without a request
	}
	// Read the ledger before the cache. The cache may be stale, but an admitted Node that it does not show yet is in the
	// ledger.
	ledger, err := readLedger(ctx, c.client, c.Namespace, c.Ledger)
	if err != nil {
		return 0, err
	}
	cacheVersion := c.nodes.Informer().GetStore().LastStoreSyncResourceVersion()
	if nodes, err = c.lister.List(labels.Everything()); err != nil {
		return 0, err
	}
	unfinished := ledger.settle(nodes, cacheVersion)
	slots := ledger.names()
	var admitted []*corev1.Node
	again, _ = c.decide(State{Nodes: nodes, Slots: slots, Unfinished: unfinished, Paused: ledger.paused}, func(node *corev1.Node) {
		ledger.slots[node.Name] = node.ResourceVersion
		admitted = append(admitted, node)
	})
	if len(ledger.slots) > len(slots) {
		if err := ledger.save(ctx, c.client); err != nil {
			return 0, err
		}
	}
	var errs []error
	for _, node := range admitted {
		errs = append(errs, c.putOff(ctx, node, c.startDrain(ctx, node)))
	}
	for _, node := range unfinished {
		if !slices.Contains(admitted, node) {
			errs = append(errs, c.putOff(ctx, node, c.withdraw(ctx, node)))
		}
	}
	if len(c.refused) > 0 && (again == 0 || again > settleInterval) {
		again = settleInterval
	}
	return again, utilerrors.NewAggregate(errs)
}

// decide calls admit for each Node that may be admitted, and reports whether there is any. again is the delay until the
// decision may change without an event; 0 if it cannot.
func (c *Controller) decide(state State, admit func(*corev1.Node)) (again time.Duration, any bool) {
	state.Now, state.Blockers, state.Refused = time.Now(), c.blocking(), c.refused
	for _, d := range Decide(state, c.Policy) {
		switch {
		case d.Reason == Admitted:
			admit(d.Node)
			any = true
		case d.Reason == NotSelected || d.Reason == Blocked: // the other reasons concern all Nodes: see "kubectl reboot why"
			key := string(d.Reason) + d.Node.Annotations[LastAttemptAnnotation] // once for each attempt
			c.tell(d.Node, corev1.EventTypeWarning, "RebootRefused", "Admit", key, "Not rebooting now: %s", d.Message)
		}
		if wait := d.Again.Sub(state.Now); !d.Again.IsZero() && (again == 0 || wait < again) {
			again = max(wait, time.Second)
		}
	}
	return again, any
}

// reconcile moves one Node on to its next phase, if it is the controller's turn.
func (c *Controller) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	node, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		c.told.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	since := sinceThen(node, SinceAnnotation)
	switch phase := PhaseOf(node); {
	case phase == Draining && !node.Spec.Unschedulable:
		return 0, c.cordonAgain(ctx, node)
	case phase == Draining:
		return c.drain(ctx, name)
	case phase == Approved && !node.Spec.Unschedulable:
		return 0, c.cordonAgain(ctx, node)
	case phase == Approved && since >= c.AgentTimeout:
		return 0, c.giveUp(ctx, node, "AgentTimeout", fmt.Sprintf("the agent has not acted for %s", c.AgentTimeout))
	case phase == Approved:
		return c.AgentTimeout - since, nil
	case phase == InProgress:
		return c.awaitReboot(node, since), nil
	case phase == Cancelled:
		return 0, c.cancel(ctx, node)
	}
	return 0, nil
}

// Package reboot reboots the Nodes of a cluster one after another. It has two parts that talk to each other through
// annotations of the Nodes, see [protocol.PhaseOf]: one [Controller] for the cluster, which decides which Node may reboot next and
// drains it, and on each Node an [agent.Agent], which reboots the machine and proves that it did.
//
//   - The controller never makes more Nodes unavailable than [policy.Policy] allows, even if two controllers are active.
//   - Every process may be killed between any two requests. The annotations hold all that its successor needs.
//   - A reboot is over when the boot ID has changed, and not before.
//   - A Node that somebody else cordoned stays cordoned.
package reboot

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

	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/protocol"
)

// settleInterval is the time between two looks at the ledger while it has entries of Nodes that the API server does not let us
// change. Any change of such a Node frees its slot, such as a heartbeat, which is no reason to decide again otherwise.
const settleInterval = 30 * time.Second

// decisionDelay is how long after a change the controller decides. Later changes do not put it off.
const decisionDelay = 500 * time.Millisecond

// admission is the key of the decision which Nodes to admit. All other keys are names of Nodes.
const admission = ""

// Controller admits and drains Nodes. Run must be called at most once.
type Controller struct {
	Options
	client   kubernetes.Interface
	nodes    coreinformers.TypedNodeInformer
	lister   listers.NodeLister
	ledgers  listers.ConfigMapNamespaceLister
	blockers []listers.PodLister // one for each selector of Pods that block reboots
	agents   listers.PodLister   // nil if it is not checked whether an agent runs
	drainer  *drain.Drainer
	factory  []informers.SharedInformerFactory
	queue    workqueue.TypedRateLimitingInterface[string]

	recorder    events.EventRecorder
	broadcaster events.EventBroadcaster
	told        *told                // the last Events about each Node, which are not repeated
	refused     map[string]time.Time // see [policy.State.Refused]; of the worker that decides
	metrics     *metrics
	ready       atomic.Bool
}

// New returns a controller that makes no request before Run is called.
func New(ctx context.Context, client kubernetes.Interface, options Options) (*Controller, error) {
	logger := klog.FromContext(ctx)
	nodeFactory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(protocol.Strip))
	ledgerFactory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(options.Namespace),
		informers.WithTweakListOptions(func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, options.Ledger).String()
		}))
	c := &Controller{
		Options: options,
		client:  client,
		nodes:   nodeFactory.Core().V1().Nodes(),
		drainer: drain.New(client, options.Rules),
		factory: []informers.SharedInformerFactory{nodeFactory, ledgerFactory},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](options.Backoff, options.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "nodes"}),
		broadcaster: events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}),
		told:        newTold(),
		refused:     map[string]time.Time{},
	}
	c.lister = c.nodes.Lister()
	c.ledgers = ledgerFactory.Core().V1().ConfigMaps().Lister().ConfigMaps(options.Namespace)
	c.metrics = newMetrics(c.lister, c.counts)
	c.recorder = protocol.NewRecorder(c.broadcaster, "reboot-controller")

	_, err := c.nodes.TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc: func(node *corev1.Node) { c.enqueue(node.Name) },
		UpdateFunc: func(old, node *corev1.Node) {
			c.metrics.observe(old, node)
			if protocol.Concerns(old, node) {
				c.enqueue(node.Name)
			}
		},
		DeleteFunc: func(node coreinformers.DeletedNode) { c.enqueue(node.GetObjectName().Name) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, err
	}
	decide := func(any) { c.decideSoon() }
	_, err = ledgerFactory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: decide, UpdateFunc: func(_, configMap any) { decide(configMap) }, DeleteFunc: decide,
	})
	if err != nil {
		return nil, err
	}
	for _, selector := range options.BlockingPods {
		lister, err := c.watchPods(selector, metav1.NamespaceAll)
		if err != nil {
			return nil, err
		}
		c.blockers = append(c.blockers, lister)
	}
	if options.AgentPods != nil {
		c.agents, err = c.watchPods(options.AgentPods, options.AgentNamespace)
	}
	return c, err
}

// watchPods adds an informer for some Pods, whose changes may change what may be admitted.
func (c *Controller) watchPods(selector labels.Selector, namespace string) (listers.PodLister, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(namespace), informers.WithTransform(drain.Strip),
		informers.WithTweakListOptions(func(list *metav1.ListOptions) { list.LabelSelector = selector.String() }))
	c.factory = append(c.factory, factory)
	decide := func(any) { c.decideSoon() }
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: decide, UpdateFunc: func(_, pod any) { decide(pod) }, DeleteFunc: decide,
	})
	return factory.Core().V1().Pods().Lister(), err
}

// enqueue adds a Node to the queue. What changes on one Node may free a slot for another.
func (c *Controller) enqueue(name string) {
	c.queue.Add(name)
	c.decideSoon()
}

// decideSoon adds the decision to the queue. It looks at all Nodes, and they change all the time while many of them reboot, so
// changes that come close together have one decision. The queue's metrics count each as a retry, as they do all keys with a delay.
func (c *Controller) decideSoon() { c.queue.AddAfter(admission, decisionDelay) }

// Ready reports whether the caches have synced and shutdown has not begun. A controller that waits for its Lease is not ready.
func (c *Controller) Ready() bool { return c.ready.Load() }

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
	if !c.owns(node) {
		c.tellAdmittedElsewhere(ctx, node)
		return 0, nil
	}
	since := protocol.SinceThen(node, protocol.SinceAnnotation)
	switch phase := protocol.PhaseOf(node); {
	case phase == protocol.Draining && !node.Spec.Unschedulable:
		return 0, c.cordonAgain(ctx, node)
	case phase == protocol.Draining:
		return c.drain(ctx, name)
	case phase == protocol.Approved && !node.Spec.Unschedulable:
		return 0, c.cordonAgain(ctx, node)
	case phase == protocol.Approved && since >= c.AgentTimeout:
		return 0, c.giveUp(ctx, node, "AgentTimeout", fmt.Sprintf("the agent has not acted for %s", c.AgentTimeout))
	case phase == protocol.Approved:
		return c.AgentTimeout - since, nil
	case phase == protocol.InProgress:
		return c.awaitReboot(node, since), nil
	case phase == protocol.Cancelled:
		return 0, c.cancel(ctx, node)
	}
	return 0, nil
}

package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	samplecrdv1ac "example.com/controllers/crd/generated/applyconfiguration/samplecrd/v1"
	"example.com/controllers/crd/generated/clientset/versioned"
	"example.com/controllers/crd/generated/clientset/versioned/scheme"
	informers "example.com/controllers/crd/generated/informers/externalversions"
	samplecrdinformers "example.com/controllers/crd/generated/informers/externalversions/samplecrd/v1"
)

// Finalizer keeps a Network in the API server until the backend has deleted what belongs to it. The controller adds it
// before it creates anything in the backend.
const Finalizer = "samplecrd.k8s.io/network"

// fieldManager is the name under which the API server records which fields the controller owns.
const fieldManager = "network-controller"

// Controller reconciles the Networks of one namespace with a [Backend]. A Controller can be run once.
type Controller struct {
	Options
	client      versioned.Interface
	backend     Backend
	factory     informers.SharedInformerFactory
	networks    samplecrdinformers.TypedNetworkInformer
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName] // keys of Networks
	ownWrites   *ownWrites
	recorder    events.EventRecorder
	broadcaster events.EventBroadcaster // sends the recorder's Events to the API server
	ready       atomic.Bool             // from the first cache sync until shutdown begins
}

// New returns a controller that Run starts. It writes Events with the kube client.
func New(ctx context.Context, kube kubernetes.Interface, client versioned.Interface, backend Backend, options Options) (*Controller, error) {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(options.Namespace))
	c := &Controller{
		Options:  options,
		client:   client,
		backend:  backend,
		factory:  factory,
		networks: samplecrdinformers.ToTypedNetworkInformer(factory.Samplecrd().V1().Networks()),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](options.Backoff, options.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "networks"}),
		ownWrites:   newOwnWrites(),
		broadcaster: events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()}),
	}
	c.recorder = c.broadcaster.NewRecorder(scheme.Scheme, fieldManager)
	_, err := c.networks.TypedInformer().AddTypedEventHandler(samplecrdinformers.NetworkHandlerFuncs{
		AddFunc: func(n *samplecrdv1.Network) { c.queue.Add(cache.MetaObjectToName(n)) },
		UpdateFunc: func(old, n *samplecrdv1.Network) {
			if needsReconcile(old, n) {
				c.queue.Add(cache.MetaObjectToName(n))
			}
		},
		DeleteFunc: func(n samplecrdinformers.DeletedNetwork) { c.queue.Add(n.GetObjectName()) },
	}, cache.HandlerOptions{Logger: &logger})
	return c, err
}

// needsReconcile reports whether an update changed what the controller acts on: the spec, which metadata.generation
// counts the changes of; the deletion; the finalizers. A changed status does not count. Only the controller writes it,
// and enqueueing its own writes would retry a failed Network at once, past the backoff. If the UID differs, the Network
// was deleted and recreated while the watch was down.
func needsReconcile(old, n *samplecrdv1.Network) bool {
	return old.UID != n.UID || old.Generation != n.Generation ||
		!old.DeletionTimestamp.Equal(n.DeletionTimestamp) || !slices.Equal(old.Finalizers, n.Finalizers)
}

// Run reconciles until ctx is cancelled. It then finishes in-flight work and returns when all of its goroutines have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	// In-flight work may continue for Grace after ctx is cancelled.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := c.broadcaster.StartRecordingToSinkWithContext(work); err != nil {
		return err
	}
	defer c.broadcaster.Shutdown()
	c.factory.StartWithContext(ctx)
	defer c.factory.Shutdown()
	// Don't act before the cache has synced.
	if err := c.factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		c.queue.ShutDown()
		return nil // ctx was cancelled before the cache had synced
	}
	c.ready.Store(true)
	logger.Info("Caches synced", "workers", c.Workers)

	var workers sync.WaitGroup
	for number := range c.Workers {
		workers.Go(func() {
			ctx := klog.NewContext(work, klog.LoggerWithValues(logger, "worker", number))
			for c.processNextWorkItem(ctx) {
			}
		})
	}
	workers.Go(func() {
		wait.JitterUntilWithContext(ctx, func(context.Context) { c.sweep(work) }, c.Recheck, 0.2, true)
	})
	<-ctx.Done()
	c.ready.Store(false)
	time.AfterFunc(c.Grace, stop)
	c.queue.ShutDownWithDrain()
	c.queue.ShutDown() // drops what AddAfter still holds back; a drain does not
	workers.Wait()
	logger.Info("Stopped")
	return nil
}

// processNextWorkItem takes a key from the queue and reconciles its Network. It returns false when the queue is shut down.
func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	// Don't act on a cache that is older than the controller's own writes. Waiting is neither a failure nor a success:
	// it leaves the backoff as it is.
	if !c.ownWrites.ensureReady(c.networks.Informer().GetStore(), key) {
		c.queue.AddAfter(key, c.Backoff)
		return true
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "network", key))
	if err := c.reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, will retry", "failures", c.queue.NumRequeues(key)+1)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile makes the backend match a Network, and the Network's status and finalizer match the backend.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	network, err := c.get(ctx, key)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	hasFinalizer := slices.Contains(network.Finalizers, Finalizer)
	switch {
	case network.DeletionTimestamp != nil && !hasFinalizer:
		return nil // it waits for another controller's finalizer
	case network.DeletionTimestamp != nil:
		if err := c.backend.Delete(ctx, network); err != nil {
			return errors.Join(err, c.updateStatus(ctx, network, IDs{}, err))
		}
		klog.FromContext(ctx).Info("Deleted the network in the cloud")
		return c.setFinalizers(ctx, network, slices.DeleteFunc(slices.Clone(network.Finalizers), func(f string) bool { return f == Finalizer }))
	case !hasFinalizer:
		// Create nothing before the finalizer is stored. Without it, the Network could be deleted without cleanup.
		return c.setFinalizers(ctx, network, append(slices.Clone(network.Finalizers), Finalizer))
	}
	ids, err := c.backend.Ensure(ctx, network)
	if err := errors.Join(err, c.updateStatus(ctx, network, ids, err)); err != nil {
		return err
	}
	// The backend has no watch, so check for drift periodically. The jitter spreads the checks of many Networks.
	c.queue.AddAfter(key, wait.Jitter(c.Recheck, 0.2))
	return nil
}

// get returns a Network from the cache. After a write that failed, it returns the Network from the API server: if only the
// response was lost, the write has been stored, and the cache may not have it yet.
func (c *Controller) get(ctx context.Context, key cache.ObjectName) (*samplecrdv1.Network, error) {
	if !c.ownWrites.takeFailed(key) {
		return c.networks.Lister().Networks(key.Namespace).Get(key.Name)
	}
	network, err := c.client.SamplecrdV1().Networks(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		c.ownWrites.wroteAt(key, network.ResourceVersion)
	case !apierrors.IsNotFound(err):
		c.ownWrites.failed(key)
	}
	return network, err
}

// setFinalizers replaces the finalizers. The UID and the resourceVersion in the patch are preconditions: if the Network
// has changed since the cache saw it, the API server responds with a conflict. Otherwise, a finalizer that somebody has
// added meanwhile would be lost.
func (c *Controller) setFinalizers(ctx context.Context, network *samplecrdv1.Network, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": network.UID, "resourceVersion": network.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	patched, err := c.client.SamplecrdV1().Networks(network.Namespace).Patch(ctx, network.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.ownWrites.failed(cache.MetaObjectToName(network))
		return fmt.Errorf("set finalizers of Network %s: %w", klog.KObj(network), err)
	}
	c.ownWrites.wroteAt(cache.MetaObjectToName(network), patched.ResourceVersion)
	return nil
}

// updateStatus writes the outcome of a reconcile into the status if it is a new one, and an Event if the condition's
// status or reason has changed, or if there is another network or subnet than before.
func (c *Controller) updateStatus(ctx context.Context, network *samplecrdv1.Network, ids IDs, reconcileErr error) error {
	ready := metav1.Condition{
		Type: samplecrdv1.ConditionReady, Status: metav1.ConditionTrue, Reason: samplecrdv1.ReasonReady,
		Message: "the network in the cloud matches the spec", ObservedGeneration: network.Generation,
	}
	if reconcileErr != nil { // keep the last known IDs
		ids = IDs{network.Status.NetworkID, network.Status.SubnetID}
	}
	var refused *RefusedError
	switch {
	case errors.As(reconcileErr, &refused):
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, refused.Reason, shorten(refused.Message, maxMessage)
	case reconcileErr != nil:
		// The error may be worded differently each time. It is in the log; the status would be written at each retry.
		ready.Status, ready.Reason = metav1.ConditionFalse, samplecrdv1.ReasonUnavailable
		ready.Message = "calls to the cloud fail; the controller keeps retrying"
	}
	before := meta.FindStatusCondition(network.Status.Conditions, ready.Type)
	status := samplecrdv1.NetworkStatus{ObservedGeneration: network.Generation, NetworkID: ids.NetworkID, SubnetID: ids.SubnetID}
	status.Conditions = slices.Clone(network.Status.Conditions)
	meta.SetStatusCondition(&status.Conditions, ready) // keeps lastTransitionTime unless the condition's status changes
	if equality.Semantic.DeepEqual(status, network.Status) {
		return nil
	}
	ready = *meta.FindStatusCondition(status.Conditions, ready.Type)
	desired := samplecrdv1ac.NetworkStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithConditions(metav1ac.Condition().WithType(ready.Type).WithStatus(ready.Status).WithReason(ready.Reason).
			WithMessage(ready.Message).WithObservedGeneration(ready.ObservedGeneration).
			WithLastTransitionTime(ready.LastTransitionTime))
	if ids != (IDs{}) {
		desired.WithNetworkID(ids.NetworkID).WithSubnetID(ids.SubnetID)
	}
	applied, err := c.client.SamplecrdV1().Networks(network.Namespace).ApplyStatus(ctx,
		samplecrdv1ac.Network(network.Name, network.Namespace).
			WithResourceVersion(network.ResourceVersion). // a precondition; a UID would be none
			WithStatus(desired),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.ownWrites.failed(cache.MetaObjectToName(network))
		return fmt.Errorf("apply status of Network %s: %w", klog.KObj(network), err)
	}
	c.ownWrites.wroteAt(cache.MetaObjectToName(network), applied.ResourceVersion)
	if lost := ids.replacing(network.Status); lost != "" {
		c.recorder.Eventf(applied, nil, corev1.EventTypeWarning, "Replaced", "Reconcile", "gone from the cloud, and replaced: %s", lost)
	}
	if before == nil || before.Status != ready.Status || before.Reason != ready.Reason {
		eventType := corev1.EventTypeNormal
		if ready.Status != metav1.ConditionTrue {
			eventType = corev1.EventTypeWarning
		}
		c.recorder.Eventf(applied, nil, eventType, ready.Reason, "Reconcile", "%s", shorten(ready.Message, maxNote))
	}
	return nil
}

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

// Finalizer keeps a Network until what was made for it is gone. It is there before anything is made.
const Finalizer = "samplecrd.k8s.io/network"

const manager = "network-controller"

// Controller does the job in one namespace. Run it once.
type Controller struct {
	Options
	client     versioned.Interface
	backend    Backend
	factory    informers.SharedInformerFactory
	networks   samplecrdinformers.TypedNetworkInformer
	queue      workqueue.TypedRateLimitingInterface[cache.ObjectName] // of Networks
	ownWrites  *ownWrites
	recorder   events.EventRecorder
	announcers events.EventBroadcaster
	ready      atomic.Bool
}

// New returns a controller that has not begun yet. Events are written with the kube client.
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
		ownWrites:  newOwnWrites(),
		announcers: events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()}),
	}
	c.recorder = c.announcers.NewRecorder(scheme.Scheme, manager)
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

// needsReconcile reports whether an update is about what we were asked for, and not about the status, which only we
// write: without this, every status that we write would enqueue its Network again, at once, whatever the backoff.
// metadata.generation counts the changes of the spec. With another UID, it is a Network that was deleted and created
// again while the watch was down.
func needsReconcile(old, n *samplecrdv1.Network) bool {
	return old.UID != n.UID || old.Generation != n.Generation ||
		!old.DeletionTimestamp.Equal(n.DeletionTimestamp) || !slices.Equal(old.Finalizers, n.Finalizers)
}

// Run works until ctx ends. Then it finishes what it is at, and returns when nothing of it is left.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	// What is being done when ctx ends, may go on for the time of grace.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := c.announcers.StartRecordingToSinkWithContext(work); err != nil {
		return err
	}
	defer c.announcers.Shutdown()
	c.factory.StartWithContext(ctx)
	defer c.factory.Shutdown()
	// Nobody may act on half a cache.
	if err := c.factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		c.queue.ShutDown()
		return nil // told to stop before there was anything to do
	}
	c.ready.Store(true)
	logger.Info("In step with the API server", "workers", c.Workers)

	var workers sync.WaitGroup
	for number := range c.Workers {
		workers.Go(func() {
			ctx := klog.NewContext(work, klog.LoggerWithValues(logger, "worker", number))
			for c.processNext(ctx) {
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
	c.queue.ShutDown() // what waits to be added later; draining leaves that behind
	workers.Wait()
	logger.Info("Stopped")
	return nil
}

// processNext takes a Network out of the queue and looks at it. It returns false when there will be no more.
func (c *Controller) processNext(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	// Don't act on a cache that is older than our own writes. This is neither a failure nor a success, so the number
	// of failures stays as it is.
	if !c.ownWrites.seenBy(c.networks.Informer().GetStore(), key) {
		c.queue.AddAfter(key, c.Backoff)
		return true
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "network", key))
	if err := c.reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Failed, will try again", "failures", c.queue.NumRequeues(key)+1)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile looks at a Network, and makes what is outside as it says.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	network, err := c.networks.Lister().Networks(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	isOurs := slices.Contains(network.Finalizers, Finalizer)
	switch {
	case network.DeletionTimestamp != nil && !isOurs:
		return nil // somebody else's finalizer is still there
	case network.DeletionTimestamp != nil:
		if err := c.backend.Delete(ctx, network); err != nil {
			return errors.Join(err, c.report(ctx, network, Made{}, err))
		}
		klog.FromContext(ctx).Info("What was made for the Network is gone")
		return c.setFinalizers(ctx, network, slices.DeleteFunc(slices.Clone(network.Finalizers), func(f string) bool { return f == Finalizer }))
	case !isOurs:
		// From now on, the Network is not gone before we have been asked. So nothing may be made before this.
		return c.setFinalizers(ctx, network, append(slices.Clone(network.Finalizers), Finalizer))
	}
	made, err := c.backend.Ensure(ctx, network)
	if err := errors.Join(err, c.report(ctx, network, made, err)); err != nil {
		return err
	}
	// Nobody tells us what is changed outside. Not all at once are looked at again.
	c.queue.AddAfter(key, wait.Jitter(c.Recheck, 0.2))
	return nil
}

// setFinalizers writes them, if the Network is still the one that we saw.
func (c *Controller) setFinalizers(ctx context.Context, network *samplecrdv1.Network, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": network.UID, "resourceVersion": network.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	patched, err := c.client.SamplecrdV1().Networks(network.Namespace).Patch(ctx, network.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set the finalizers of Network %s: %w", klog.KObj(network), err)
	}
	c.ownWrites.wrote(cache.MetaObjectToName(network), patched.ResourceVersion)
	return nil
}

// report writes what became of it into the status, and says so in an Event, if that is new.
func (c *Controller) report(ctx context.Context, network *samplecrdv1.Network, made Made, problem error) error {
	ready := metav1.Condition{
		Type: samplecrdv1.ConditionReady, Status: metav1.ConditionTrue, Reason: samplecrdv1.ReasonReady,
		Message: "the network is as it should be", ObservedGeneration: network.Generation,
	}
	if problem != nil { // what was there when all was well is still what we know
		made = Made{network.Status.NetworkID, network.Status.SubnetID}
	}
	var refused *RefusedError
	switch {
	case errors.As(problem, &refused):
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, refused.Reason, refused.Message
	case problem != nil:
		// What exactly does not work may be different each time, and is in our log.
		ready.Status, ready.Reason = metav1.ConditionFalse, samplecrdv1.ReasonUnavailable
		ready.Message = "the cloud does not answer, or not as it should; it is tried again"
	}
	before := meta.FindStatusCondition(network.Status.Conditions, ready.Type)
	status := samplecrdv1.NetworkStatus{ObservedGeneration: network.Generation, NetworkID: made.NetworkID, SubnetID: made.SubnetID}
	status.Conditions = slices.Clone(network.Status.Conditions)
	meta.SetStatusCondition(&status.Conditions, ready) // the time stays if the status does
	if equality.Semantic.DeepEqual(status, network.Status) {
		return nil
	}
	ready = *meta.FindStatusCondition(status.Conditions, ready.Type)
	wanted := samplecrdv1ac.NetworkStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithConditions(metav1ac.Condition().WithType(ready.Type).WithStatus(ready.Status).WithReason(ready.Reason).
			WithMessage(ready.Message).WithObservedGeneration(ready.ObservedGeneration).
			WithLastTransitionTime(ready.LastTransitionTime))
	if made != (Made{}) {
		wanted.WithNetworkID(made.NetworkID).WithSubnetID(made.SubnetID)
	}
	applied, err := c.client.SamplecrdV1().Networks(network.Namespace).ApplyStatus(ctx,
		samplecrdv1ac.Network(network.Name, network.Namespace).
			WithUID(network.UID). // and of no other of that name
			WithStatus(wanted),
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of Network %s: %w", klog.KObj(network), err)
	}
	c.ownWrites.wrote(cache.MetaObjectToName(network), applied.ResourceVersion)
	if before == nil || before.Status != ready.Status || before.Reason != ready.Reason {
		kind := corev1.EventTypeNormal
		if ready.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}
		c.recorder.Eventf(applied, nil, kind, ready.Reason, "Reconcile", "%s", ready.Message)
	}
	return nil
}

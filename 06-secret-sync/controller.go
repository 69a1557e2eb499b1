// Package secretsync keeps copies of Secrets in many namespaces. A Secret of the source namespace that is labelled as shared
// is copied to each namespace that is labelled as wanting copies, and the copies follow it.
//
//   - One key is one copy. What should exist at a key is decided by [Decide], from caches and without a request, and takes
//     one write if it differs from what exists.
//   - Only Secrets that the controller created are updated or deleted, and only in the version that the decision was about.
//   - The data of Secrets is read in the source namespace only. Of the copies, the cache has the metadata; of all other
//     Secrets, nothing.
//   - A copy is never without the data of a source. It is replaced as a whole, or deleted.
//   - Every process may be killed between any two requests.
package secretsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// settle is how long after a write the controller reconciles the copy again. Usually the watch has delivered the write long
// before. But if the copy was deleted at once, while the watch was down, no event reports that.
const settle = time.Second

// Controller keeps the copies of one source namespace up to date. Run must be called at most once.
type Controller struct {
	Options
	client     kubernetes.Interface
	sources    coreinformers.SecretIndexInformer // with data
	namespaces cache.SharedIndexInformer         // metadata only
	copies     cache.SharedIndexInformer         // metadata only, selected by CopyLabel
	namesakes  *namesakes                        // Secrets of others that are in the way
	parsed     sync.Map                          // *Source of each cached source, by name
	queue      workqueue.TypedRateLimitingInterface[cache.ObjectName]
	limiter    flowcontrol.RateLimiter // of writes; nil if there is no limit
	ownWrites  *ownWrites
	attempts   sync.Map // attempt of the last write of each copy, by key

	recorder    events.EventRecorder
	broadcaster events.EventBroadcaster
	targets     targets
	outcomes    *outcomes // what the last reconcile of each key has found
	pending     *pending  // since when keys wait
	metrics     *metrics
	lastEvent   atomic.Pointer[time.Time] // when the watch of sources, namespaces or copies last delivered an object; nil if none has
	ready       atomic.Bool
	stopping    atomic.Bool
}

// New returns a controller that makes no request before Run is called. Its clients must have no rate limits and send no write
// again: the controller waits before it decides, and not between a decision and its write.
func New(ctx context.Context, client kubernetes.Interface, metadataClient metadata.Interface, options Options) (*Controller, error) {
	shared := labels.SelectorFromSet(labels.Set{SharedLabel: "true"}).String()
	ours := labels.SelectorFromSet(labels.Set{CopyLabel: options.SourceNamespace}).String()
	c := &Controller{
		Options: options,
		client:  client,
		sources: coreinformers.NewTypedFilteredSecretInformer(client, options.SourceNamespace, 0, nil, func(list *metav1.ListOptions) {
			list.LabelSelector = shared
		}),
		namespaces: newMetadataInformer(metadataClient, namespacesResource, nil),
		copies: newMetadataInformer(metadataClient, secretsResource, func(list *metav1.ListOptions) {
			list.LabelSelector = ours
		}),
		limiter:     options.limiter(),
		ownWrites:   newOwnWrites(),
		broadcaster: events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}),
		targets:     targets{known: map[string]target{}},
		outcomes:    newOutcomes(),
		pending:     newPending(),
	}
	c.queue = newQueue(options, c.isDelete)
	c.namesakes = newNamesakes(metadataClient, options.Scope, c.enqueue, c.enqueueName)
	c.metrics = newMetrics(c.outcomes, c.pending)
	c.recorder = shortNotes{c.broadcaster.NewRecorder(scheme.Scheme, "secretsync")}
	return c, c.addHandlers(klog.FromContext(ctx))
}

// Run works until ctx is cancelled, and returns when no goroutine of the controller is left.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, withoutBodies(klog.FromContext(ctx)))
	logger := klog.FromContext(ctx)
	// In-flight work may continue for Grace after ctx is cancelled.
	workCtx, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelWork()
	if err := c.broadcaster.StartRecordingToSinkWithContext(workCtx); err != nil {
		return fmt.Errorf("start recording Events: %w", err)
	}
	defer c.broadcaster.Shutdown()
	watchCtx, stopWatches := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer c.namesakes.wait()
	defer stopWatches()
	c.namesakes.start(watchCtx)
	for _, informer := range []cache.SharedIndexInformer{c.sources, c.namespaces, c.copies} {
		watches.Go(func() { informer.RunWithContext(watchCtx) })
	}
	// Don't act before all caches have synced: until then, a source that is not in the cache yet looks deleted.
	if !cache.WaitFor(ctx, "", c.sources.HasSyncedChecker(), c.namespaces.HasSyncedChecker(), c.copies.HasSyncedChecker()) {
		c.queue.ShutDown()
		return nil // ctx was cancelled first
	}
	c.ready.Store(true)
	logger.Info("Caches synced", "sources", len(c.sources.GetStore().ListKeys()), "copies", len(c.copies.GetStore().ListKeys()), "workers", c.Workers)
	if c.namespace(c.SourceNamespace) == nil {
		logger.Error(nil, "The source namespace does not exist, so there are no sources, and its remaining copies are deleted", "namespace", c.SourceNamespace)
	}
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
	// Keys that are still in the queue are dropped: the next process finds them again.
	c.stopping.Store(true)
	c.queue.ShutDownWithDrain()
	c.queue.ShutDown() // drops the keys whose delay is not over
	workers.Wait()
	logger.Info("Stopped")
	return nil
}

// processNextWorkItem reconciles the next key. It returns false when the queue is shut down and empty.
func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key) // until then, no other worker gets the key
	if c.stopping.Load() {
		return true
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "copy", key))
	err := c.reconcile(ctx, key)
	var failed *WriteError
	switch {
	case err == nil:
		c.queue.Forget(key)
	case errors.As(err, &failed) && failed.gone:
		// The copy or its namespace is gone, or being deleted, and the caches will show that. If it has come back, and this API
		// server does not know yet, no event may follow. So decide again later.
		klog.FromContext(ctx).V(2).Info("Gone, deciding again later", "err", err)
		c.queue.Forget(key)
		c.queue.AddAfter(key, c.MaxBackoff)
	case errors.As(err, &failed) && (failed.conflict || failed.exists):
		klog.FromContext(ctx).V(2).Info("Conflict, requeueing with backoff", "err", err)
		c.queue.AddRateLimited(key)
	default:
		klog.FromContext(ctx).Error(err, "Failed, requeueing with backoff", "failures", c.queue.NumRequeues(key)+1)
		c.queue.AddRateLimited(key)
	}
	return true
}

// reconcile brings the copy at a key to its desired state, with at most one write, or two for a Recreate.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	in, decision, ok := c.decide(key)
	if ok && decision.Action != None && c.limiter != nil {
		for range decision.Action.writes() {
			if err := c.limiter.Wait(ctx); err != nil {
				return err
			}
		}
		in, decision, ok = c.decide(key) // the source may have been deleted while its copy waited
	}
	if !ok {
		c.queue.AddAfter(key, c.Backoff)
		return nil
	}
	err := c.write(ctx, in, decision)
	c.report(ctx, in, decision, err)
	if len(in.Sources) == 0 {
		c.namesakes.release(key.Name)
	}
	switch {
	case decision.refuses(Mutated):
		c.queue.AddAfter(key, c.MaxBackoff)
	case in.hold > 0:
		c.queue.AddAfter(key, in.hold)
	case decision.Action != None && err == nil:
		c.queue.AddAfter(key, settle)
	case in.Copy == nil: // and should not exist, or cannot
		c.forgetAttempt(key)
	}
	return err
}

// write carries out a decision.
func (c *Controller) write(ctx context.Context, in Input, decision Decision) error {
	if decision.Action != None {
		klog.FromContext(ctx).V(1).Info("Writing", "action", decision.Action, "why", decision.Why, "source", decision.Source.nameOrNone())
	}
	switch decision.Action {
	case Delete:
		err := c.delete(ctx, in.Key, in.Copy)
		if err == nil {
			c.attempted(in.Key, decision, "")
		}
		return err
	case Update:
		err := c.update(ctx, in.Key, decision, in.Copy)
		var failed *WriteError
		if !errors.As(err, &failed) || !failed.immutable {
			return err
		}
		fallthrough // the metadata did not show that the copy is immutable, or of another type; these writes exceed the limit
	case Recreate:
		if err := c.delete(ctx, in.Key, in.Copy); err != nil {
			return err
		}
		return c.create(ctx, in.Key, decision, in.Copy)
	case Create:
		err := c.create(ctx, in.Key, decision, nil)
		var failed *WriteError
		if errors.As(err, &failed) && failed.exists {
			c.namesakes.watch(in.Key.Name) // shows what is in the way, and when it is gone
		}
		return err
	}
	return nil
}

// decide decides what should exist at a key, from the caches. It returns false while they do not show the controller's own
// last write yet, or while the cache of namesakes with this name has not synced.
func (c *Controller) decide(key cache.ObjectName) (Input, Decision, bool) {
	// First ask whether the cache has the last write, and then read it: what is read is at least as new.
	if !c.ownWrites.ensureReady(c.copies.GetStore(), key, metadataAt(c.copies.GetStore(), key.String())) {
		return Input{}, Decision{}, false
	}
	in := Input{Scope: c.Scope, Key: key, Namespace: c.namespace(key.Namespace), Copy: metadataAt(c.copies.GetStore(), key.String())}
	certain := true
	if in.Copy == nil {
		in.Copy, certain = c.namesakes.get(key)
	}
	in.Sources = c.sourcesOf(key.Name, in.Copy)
	decision, hold := c.holdBack(in, Decide(in))
	in.hold = hold
	return in, decision, certain
}

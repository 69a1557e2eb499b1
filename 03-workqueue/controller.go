// Package workqueue is a level-triggered controller. Its event handlers only add keys to a queue. Workers take keys
// from the queue, compare the actual state of the object with the desired one, and retry until the two agree.
//
// It does the job of lessons 1 and 2: log on which node each Pod runs, and when ConfigMap "frontend-config"
// changes, replace the Pods labelled app=frontend by deleting them; their Deployment creates new ones.
//
//   - No change is lost, whether it is made while the controller is down or its request fails.
//   - A key that is added many times while it waits in the queue is reconciled once.
//   - A Pod is never reconciled by two workers at once.
//   - A stale cache does not make the controller delete a Pod twice.
package workqueue

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
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// ConfigName is the name of the ConfigMap that the frontend reads when it starts.
const ConfigName = "frontend-config"

var frontend = labels.SelectorFromSet(labels.Set{"app": "frontend"})

// Controller replaces the outdated Pods of one namespace. Run must be called at most once.
type Controller struct {
	Options
	pods      coreinformers.TypedPodInformer
	podLister listers.PodLister // reads from the cache of pods
	config    listers.ConfigMapNamespaceLister
	factories []informers.SharedInformerFactory // of every cache that reconcile reads
	// queue holds the keys of Pods to reconcile. A key does not say what happened to the Pod.
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// ownWrites holds the deletions that the cache of pods may not show yet.
	ownWrites *ownWrites
	// deletePod returns the Pod's resourceVersion after the deletion. Tests replace it.
	deletePod   func(context.Context, *corev1.Pod) (resourceVersion string, err error)
	recorder    events.EventRecorder
	broadcaster events.EventBroadcaster // writes the recorder's Events to the API server
	ready       atomic.Bool             // caches synced, and not shutting down
}

// New returns a controller that makes no request before Run is called.
func New(ctx context.Context, client kubernetes.Interface, options Options) (*Controller, error) {
	logger := klog.FromContext(ctx)
	inNamespace := informers.WithNamespace(options.Namespace)
	podFactory := informers.NewSharedInformerFactoryWithOptions(client, 0, inNamespace)
	configFactory := informers.NewSharedInformerFactoryWithOptions(client, 0, inNamespace,
		informers.WithTweakListOptions(func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, ConfigName).String()
		}))
	c := &Controller{
		Options:   options,
		factories: []informers.SharedInformerFactory{podFactory, configFactory},
		pods:      podFactory.Core().V1().Pods(),
		config:    configFactory.Core().V1().ConfigMaps().Lister().ConfigMaps(options.Namespace),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](options.Backoff, options.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "pods"}),
		ownWrites:   newOwnWrites(),
		deletePod:   podDeleter(client),
		broadcaster: events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}),
	}
	c.podLister = c.pods.Lister()
	c.recorder = c.broadcaster.NewRecorder(scheme.Scheme, "workqueue")

	// The handlers keep only the key: what to do depends on the Pod's current state, not on the event.
	_, err := c.pods.TypedInformer().AddTypedEventHandler(coreinformers.PodHandlerFuncs{
		AddFunc:    func(pod *corev1.Pod) { c.queue.Add(cache.MetaObjectToName(pod)) },
		UpdateFunc: func(_, pod *corev1.Pod) { c.queue.Add(cache.MetaObjectToName(pod)) },
		DeleteFunc: func(pod coreinformers.DeletedPod) { c.queue.Add(pod.GetObjectName()) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, err
	}
	_, err = configFactory.Core().V1().ConfigMaps().TypedInformer().AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    func(config *corev1.ConfigMap) { c.enqueueFrontend(logger, config) },
		UpdateFunc: func(_, config *corev1.ConfigMap) { c.enqueueFrontend(logger, config) },
	}, cache.HandlerOptions{Logger: &logger})
	return c, err
}

// enqueueFrontend adds all Pods of the frontend to the queue, as soon as replacements would be newer than the config.
func (c *Controller) enqueueFrontend(logger klog.Logger, config *corev1.ConfigMap) {
	pods, err := c.podLister.Pods(config.Namespace).List(frontend)
	if err != nil {
		logger.Error(err, "Failed to list the Pods of the frontend", "configMap", klog.KObj(config))
		return
	}
	for _, pod := range pods {
		c.queue.AddAfter(cache.MetaObjectToName(pod), untilNextSecond(lastChange(config), time.Now()))
	}
}

// Run reconciles until ctx is cancelled. It then stops adding keys, waits until the workers have drained the queue,
// and returns when no goroutine of the controller is left.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	// In-flight work may continue for Grace after ctx is cancelled, so it has a context of its own.
	workCtx, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelWork()
	if err := c.broadcaster.StartRecordingToSinkWithContext(workCtx); err != nil {
		return fmt.Errorf("start recording Events: %w", err)
	}
	defer c.broadcaster.Shutdown()
	for _, factory := range c.factories {
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
	}
	for _, factory := range c.factories {
		// Don't act before the caches have synced.
		if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			c.queue.ShutDown()
			return nil // ctx was cancelled first; stopping then is no failure
		}
	}
	if !reportsResourceVersion(c.pods.Informer().GetStore()) {
		logger.Info("The cache reports no resourceVersion, so the guard against a stale cache looks at each Pod's",
			"featureGate", clientfeatures.AtomicFIFO, "enabled", clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO))
	}
	c.ready.Store(true)
	logger.Info("Caches synced", "workers", c.Workers)

	var workers sync.WaitGroup
	for number := range c.Workers {
		workers.Go(func() {
			ctx := klog.NewContext(workCtx, klog.LoggerWithValues(logger, "worker", number))
			for c.processNextWorkItem(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.ready.Store(false)
	time.AfterFunc(c.Grace, cancelWork)
	c.queue.ShutDownWithDrain()
	c.queue.ShutDown() // drops the keys whose delay is not over; ShutDownWithDrain leaves their goroutine running
	workers.Wait()
	logger.Info("Stopped")
	return nil
}

// processNextWorkItem reconciles the next key in the queue. It returns false when the queue is shut down and empty.
func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	// Until Done, no other worker gets this key. If it is added meanwhile, Done puts it back into the queue.
	defer c.queue.Done(key)
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "pod", key))
	err := c.reconcile(ctx, key)
	if err == nil {
		c.queue.Forget(key) // resets the backoff
		return true
	}
	failures := c.queue.NumRequeues(key) + 1
	klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff", "failures", failures)
	c.queue.AddRateLimited(key) // the delay doubles each time, up to MaxBackoff; the key is never dropped
	if failures == c.WarnAfter {
		c.warn(key, err)
	}
	return true
}

// warn records an Event on the Pod, for users who read "kubectl describe" and not our log.
func (c *Controller) warn(key cache.ObjectName, failure error) {
	if pod, err := c.podLister.Pods(key.Namespace).Get(key.Name); err == nil {
		c.recorder.Eventf(pod, nil, corev1.EventTypeWarning, "NotReplaced", "Delete", "Runs an old config: %.250s", failure.Error()) // with more than 1,024 bytes, it would be refused
	}
}

// reconcile deletes the Pod if it is older than its config. It does not depend on why it was called, and calling it
// again does no more.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	logger := klog.FromContext(ctx)
	// Check before reading from the cache: what we read is then at least as new as our last write.
	if !c.ownWrites.ensureReady(c.pods.Informer().GetStore(), key) {
		return nil // the watch will deliver our write, and the handler will add the key again
	}
	pod, err := c.podLister.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		logger.Info("Pod is gone")
		return nil
	}
	if err != nil {
		return err
	}
	logger.Info("Reconciling", "node", pod.Spec.NodeName)
	config, err := c.config.Get(ConfigName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	changed := lastChange(config)
	if !isStale(pod, changed) {
		return nil
	}
	if wait := untilNextSecond(changed, time.Now()); wait > 0 {
		c.queue.AddAfter(key, wait)
		return nil
	}
	logger.Info("Pod is older than its config, deleting it")
	resourceVersion, err := c.deletePod(ctx, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete Pod %s: %w", key, err)
	}
	c.ownWrites.wroteAt(key, resourceVersion)
	return nil
}

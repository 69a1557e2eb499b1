// Package workqueue is a controller whose handlers do not work. They put the name of what may have to be
// done into a queue; workers take it out, look at how things are, and try until it is done.
//
// Its job is that of lessons 1 and 2: say on which node each Pod runs, and when ConfigMap
// "frontend-config" changes, replace the Pods labelled app=frontend by deleting them; their Deployment
// brings them back.
//
//   - No change is lost, be it made while the controller is down, or when a request fails.
//   - However often something changed, it is looked at no more often than there is time for.
//   - Never do two workers look at the same Pod at once.
//   - A Pod is deleted once, however old the informer's copy of it is.
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

// Controller does the job in one namespace. Run it once.
type Controller struct {
	Options
	client     kubernetes.Interface
	pods       coreinformers.TypedPodInformer
	podLister  listers.PodLister
	config     listers.ConfigMapNamespaceLister
	factories  []informers.SharedInformerFactory
	queue      workqueue.TypedRateLimitingInterface[cache.ObjectName] // of Pods
	ownWrites  *ownWrites
	deletePod  func(context.Context, *corev1.Pod) (resourceVersion string, err error)
	recorder   events.EventRecorder
	announcers events.EventBroadcaster
	ready      atomic.Bool
}

// New returns a controller that has not begun yet.
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
		client:    client,
		factories: []informers.SharedInformerFactory{podFactory, configFactory},
		pods:      podFactory.Core().V1().Pods(),
		config:    configFactory.Core().V1().ConfigMaps().Lister().ConfigMaps(options.Namespace),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](options.Backoff, options.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "pods"}),
		ownWrites:  newOwnWrites(),
		deletePod:  deleter(client),
		announcers: events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}),
	}
	c.podLister = c.pods.Lister()
	c.recorder = c.announcers.NewRecorder(scheme.Scheme, "workqueue")

	// What changed does not matter, only which Pods to look at.
	_, err := c.pods.TypedInformer().AddTypedEventHandler(coreinformers.PodHandlerFuncs{
		AddFunc:    func(pod *corev1.Pod) { c.queue.Add(cache.MetaObjectToName(pod)) },
		UpdateFunc: func(_, pod *corev1.Pod) { c.queue.Add(cache.MetaObjectToName(pod)) },
		DeleteFunc: func(pod coreinformers.DeletedPod) { c.queue.Add(pod.GetObjectName()) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, err
	}
	_, err = configFactory.Core().V1().ConfigMaps().TypedInformer().AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    func(config *corev1.ConfigMap) { c.enqueueAll(logger, config) },
		UpdateFunc: func(_, config *corev1.ConfigMap) { c.enqueueAll(logger, config) },
	}, cache.HandlerOptions{Logger: &logger})
	return c, err
}

// enqueueAll has all Pods of the frontend looked at, as soon as that makes sense.
func (c *Controller) enqueueAll(logger klog.Logger, config *corev1.ConfigMap) {
	pods, err := c.podLister.Pods(config.Namespace).List(frontend)
	if err != nil {
		logger.Error(err, "The Pods of the frontend are not known", "configMap", klog.KObj(config))
		return
	}
	for _, pod := range pods {
		c.queue.AddAfter(cache.MetaObjectToName(pod), secondOver(lastChange(config), time.Now()))
	}
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
	for _, factory := range c.factories {
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
	}
	for _, factory := range c.factories {
		// Nobody may act on half a cache.
		if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			c.queue.ShutDown()
			return nil // told to stop before there was anything to do
		}
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
	<-ctx.Done()
	c.ready.Store(false)
	time.AfterFunc(c.Grace, stop)
	c.queue.ShutDownWithDrain()
	c.queue.ShutDown() // what waits to be added later; draining leaves that behind
	workers.Wait()
	logger.Info("Stopped")
	return nil
}

// processNext takes a Pod out of the queue and looks at it. It returns false when there will be no more.
func (c *Controller) processNext(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	// Until then, the queue gives this key to no other worker, but remembers if somebody adds it.
	defer c.queue.Done(key)
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "pod", key))
	err := c.reconcile(ctx, key)
	if err == nil {
		c.queue.Forget(key) // its failures, so that the next one is retried soon again
		return true
	}
	failures := c.queue.NumRequeues(key) + 1
	klog.FromContext(ctx).Error(err, "Failed, will try again", "failures", failures)
	c.queue.AddRateLimited(key) // the wait doubles each time, up to MaxBackoff, and there is no last time
	if failures == c.WarnAfter {
		c.warn(key, err)
	}
	return true
}

// warn tells whoever looks at the Pod that we do not get on with it.
func (c *Controller) warn(key cache.ObjectName, why error) {
	if pod, err := c.podLister.Pods(key.Namespace).Get(key.Name); err == nil {
		c.recorder.Eventf(pod, nil, corev1.EventTypeWarning, "NotReplaced", "Delete", "Runs an old config: %v", why)
	}
}

// reconcile looks at a Pod and deletes it if it is older than its config. It does not know why it was
// called, and if it is called again, nothing more happens.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	logger := klog.FromContext(ctx)
	// Before we read anything: what is read now must not be older than what we wrote.
	if !c.TrustCache && !c.ownWrites.seenBy(c.pods.Informer().GetStore(), key) {
		return nil // our write will come, and bring us back
	}
	pod, err := c.podLister.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		logger.Info("Pod is gone")
		return nil
	}
	if err != nil {
		return err
	}
	logger.Info("Pod", "node", pod.Spec.NodeName)
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
	if wait := secondOver(changed, time.Now()); wait > 0 {
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
	c.ownWrites.wrote(key, resourceVersion)
	return nil
}

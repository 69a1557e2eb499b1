// Package eventstorm creates a network in the cloud for each ConfigMap.
package eventstorm

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Cloud is where the networks are. Both methods may be called again at any time.
type Cloud interface {
	// Ensure creates the network or changes its CIDR, and returns whether it had to.
	Ensure(ctx context.Context, name, cidr string) (changed bool, err error)
	Delete(ctx context.Context, name string) error // no error if there is no such network
}

// resync is how often every network is compared with the cloud, which has no watch.
const resync = 30 * time.Second

// Controller keeps a network for each ConfigMap of one namespace, with the CIDR from its key "cidr".
type Controller struct {
	Client    kubernetes.Interface
	Namespace string
	Cloud     Cloud

	configMaps listers.ConfigMapLister
	recorder   events.EventRecorder // for users who read "kubectl describe"
	queue      workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// Run reconciles until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.Client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start recording Events: %w", err)
	}
	defer broadcaster.Shutdown()
	c.recorder = broadcaster.NewRecorder(scheme.Scheme, "network-controller")
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, resync, informers.WithNamespace(c.Namespace))
	defer factory.Shutdown()
	c.configMaps = factory.Core().V1().ConfigMaps().Lister()
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	_, err := factory.Core().V1().ConfigMaps().TypedInformer().AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    func(network *corev1.ConfigMap) { c.queue.Add(cache.MetaObjectToName(network)) },
		UpdateFunc: func(_, network *corev1.ConfigMap) { c.queue.Add(cache.MetaObjectToName(network)) },
		DeleteFunc: func(network coreinformers.DeletedConfigMap) { c.queue.Add(network.GetObjectName()) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		c.queue.ShutDown()
		return nil // ctx was cancelled first
	}
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for c.processNextWorkItem(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
	return nil
}

// processNextWorkItem takes a key from the queue and reconciles its network. It returns false when the queue is shut down.
func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff", "network", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile makes the cloud match one ConfigMap.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	network, err := c.configMaps.ConfigMaps(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return c.Cloud.Delete(ctx, key.Name)
	}
	if err != nil {
		return err
	}
	if _, err := c.Cloud.Ensure(ctx, network.Name, network.Data["cidr"]); err != nil {
		return err
	}
	c.recorder.Eventf(network, nil, corev1.EventTypeNormal, "Synced", "Sync", "Network synced successfully")
	return nil
}

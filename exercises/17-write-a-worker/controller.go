// Package writeaworker creates a network in the cloud for each ConfigMap.
package writeaworker

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Cloud is where the networks are. Both methods may be called again at any time.
type Cloud interface {
	Ensure(ctx context.Context, name, cidr string) error // creates the network, or changes its CIDR
	Delete(ctx context.Context, name string) error       // no error if there is no such network
}

// Controller keeps a network for each ConfigMap of one namespace, with the CIDR from its key "cidr".
type Controller struct {
	Client    kubernetes.Interface
	Namespace string
	Cloud     Cloud

	configMaps listers.ConfigMapLister
	queue      workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// Run reconciles until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.Namespace))
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
	// Write me. Until then, the worker ends at once.
	_ = c.reconcile
	return false
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
	return c.Cloud.Ensure(ctx, network.Name, network.Data["cidr"])
}

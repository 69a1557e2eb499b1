// Package lostreply creates a network in the cloud for each ConfigMap.
package lostreply

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Cloud is where the networks are. It gives each network an ID; names and tags need not be unique.
type Cloud interface {
	// Create creates a network. It creates another one each time that it is called.
	Create(ctx context.Context, cidr, tag string) (id string, err error)
	// Find returns the ID of a network with a tag, or "" if there is none.
	Find(ctx context.Context, tag string) (id string, err error)
}

// NetworkID is the annotation with the ID of a ConfigMap's network.
const NetworkID = "networks.controllers.example.com/id"

// Controller creates a network for each ConfigMap of one namespace, with the CIDR from its key "cidr". To keep it short, it
// does not change or delete networks.
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

// reconcile creates the network of a ConfigMap that has none, and annotates the ConfigMap with its ID.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	network, err := c.configMaps.ConfigMaps(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if network.Annotations[NetworkID] != "" {
		return nil
	}
	id, err := c.Cloud.Create(ctx, network.Data["cidr"], string(network.UID))
	if err != nil {
		return fmt.Errorf("create the network of %s: %w", key, err)
	}
	updated := network.DeepCopy() // the object in the cache is shared
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, NetworkID, id)
	if _, err := c.Client.CoreV1().ConfigMaps(key.Namespace).Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("annotate ConfigMap %s with its network %s: %w", key, id, err)
	}
	return nil
}

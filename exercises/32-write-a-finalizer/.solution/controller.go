// Package writeafinalizer creates a network in the cloud for each ConfigMap.
package writeafinalizer

import (
	"context"
	"fmt"
	"slices"
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

// Cloud is where the networks are. Both methods may be called again at any time.
type Cloud interface {
	Ensure(ctx context.Context, name, cidr string) error // creates the network, or changes its CIDR
	Delete(ctx context.Context, name string) error       // no error if there is no such network
}

// Finalizer keeps a ConfigMap in the API server until its network has been deleted.
const Finalizer = "networks.controllers.example.com/network"

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
		return nil // its network was deleted before the finalizer was removed
	}
	if err != nil {
		return err
	}
	hasFinalizer := slices.Contains(network.Finalizers, Finalizer)
	switch {
	case network.DeletionTimestamp != nil && !hasFinalizer:
		return nil // it waits for somebody else's finalizer
	case network.DeletionTimestamp != nil:
		if err := c.Cloud.Delete(ctx, network.Name); err != nil {
			return fmt.Errorf("delete network %s: %w", network.Name, err)
		}
		return c.setFinalizers(ctx, network, slices.DeleteFunc(slices.Clone(network.Finalizers), func(f string) bool { return f == Finalizer }))
	case !hasFinalizer:
		// The event of this update brings the key back.
		return c.setFinalizers(ctx, network, append(slices.Clone(network.Finalizers), Finalizer))
	}
	return c.Cloud.Ensure(ctx, network.Name, network.Data["cidr"])
}

// setFinalizers replaces the finalizers. It fails with a conflict if the ConfigMap has changed since it was read.
func (c *Controller) setFinalizers(ctx context.Context, network *corev1.ConfigMap, finalizers []string) error {
	updated := network.DeepCopy()
	updated.Finalizers = finalizers
	if _, err := c.Client.CoreV1().ConfigMaps(network.Namespace).Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("set the finalizers of ConfigMap %s: %w", klog.KObj(network), err)
	}
	return nil
}

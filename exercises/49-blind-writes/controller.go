// Package blindwrites copies Secrets to other namespaces.
package blindwrites

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// Sync is the annotation of the Secrets to copy, and of the namespaces to copy them to.
	Sync = "secrets.controllers.example.com/sync"
	// CopyOf is the label of a copy. Its value is the name of the source. Nobody but the controller sets it.
	CopyOf = "secrets.controllers.example.com/copy-of"
)

// everything is the only key in the queue: each reconcile compares all namespaces.
const everything = "everything"

// Controller copies the Secrets of namespace Source that are annotated with Sync to all other namespaces that are.
type Controller struct {
	Client kubernetes.Interface
	Source string

	secrets    listers.SecretLister
	namespaces listers.NamespaceLister
	queue      workqueue.TypedRateLimitingInterface[string]
}

// Run reconciles until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactory(c.Client, 0)
	defer factory.Shutdown()
	c.secrets, c.namespaces = factory.Core().V1().Secrets().Lister(), factory.Core().V1().Namespaces().Lister()
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	_, err := factory.Core().V1().Secrets().TypedInformer().AddTypedEventHandler(coreinformers.SecretHandlerFuncs{
		AddFunc:    func(*corev1.Secret) { c.queue.Add(everything) },
		UpdateFunc: func(_, _ *corev1.Secret) { c.queue.Add(everything) },
		DeleteFunc: func(coreinformers.DeletedSecret) { c.queue.Add(everything) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	_, err = factory.Core().V1().Namespaces().TypedInformer().AddTypedEventHandler(coreinformers.NamespaceHandlerFuncs{
		AddFunc:    func(*corev1.Namespace) { c.queue.Add(everything) },
		UpdateFunc: func(_, _ *corev1.Namespace) { c.queue.Add(everything) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		c.queue.ShutDown()
		return nil // ctx was cancelled first
	}
	var worker sync.WaitGroup
	worker.Go(func() {
		for c.processNextWorkItem(ctx) {
		}
	})
	<-ctx.Done()
	c.queue.ShutDown()
	worker.Wait()
	return nil
}

func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.reconcile(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff")
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

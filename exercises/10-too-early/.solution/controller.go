// Package tooearly deletes copies of Secrets whose source is gone.
package tooearly

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

// CopyOf is the label of a copy. Its value is the name of the source.
const CopyOf = "secrets.controllers.example.com/copy-of"

// Controller deletes the copies in namespace To whose source in namespace From is gone.
type Controller struct {
	Client   kubernetes.Interface
	From, To string

	sources, copies listers.SecretLister
	queue           workqueue.TypedRateLimitingInterface[string] // names of Secrets
}

// Run reconciles until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	sourceFactory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.From))
	copyFactory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.To))
	c.sources = sourceFactory.Core().V1().Secrets().Lister()
	c.copies = copyFactory.Core().V1().Secrets().Lister()
	for _, factory := range []informers.SharedInformerFactory{sourceFactory, copyFactory} {
		_, err := factory.Core().V1().Secrets().TypedInformer().AddTypedEventHandler(coreinformers.SecretHandlerFuncs{
			AddFunc:    func(secret *corev1.Secret) { c.queue.Add(secret.Name) },
			UpdateFunc: func(_, secret *corev1.Secret) { c.queue.Add(secret.Name) },
			DeleteFunc: func(secret coreinformers.DeletedSecret) { c.queue.Add(secret.GetObjectName().Name) },
		}, cache.HandlerOptions{Logger: &logger})
		if err != nil {
			return err
		}
		defer factory.Shutdown()
		factory.StartWithContext(ctx)
	}
	for _, factory := range []informers.SharedInformerFactory{sourceFactory, copyFactory} {
		if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			c.queue.ShutDown()
			return nil // ctx was cancelled first
		}
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
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.reconcile(ctx, name); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff", "secret", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// reconcile deletes the copy with this name if there is no source with this name.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	secret, err := c.copies.Secrets(c.To).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, isCopy := secret.Labels[CopyOf]; !isCopy {
		return nil
	}
	_, err = c.sources.Secrets(c.From).Get(name)
	if !apierrors.IsNotFound(err) {
		return err // nil if there is a source
	}
	klog.FromContext(ctx).Info("The source is gone, deleting the copy", "secret", klog.KObj(secret))
	err = c.Client.CoreV1().Secrets(c.To).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s/%s: %w", c.To, name, err)
	}
	return nil
}

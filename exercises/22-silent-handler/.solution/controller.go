// Package silenthandler registers the addresses of Pods outside the cluster.
package silenthandler

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

// Registry is where clients outside the cluster look up the addresses of Pods. Both methods may be called again at any
// time.
type Registry interface {
	Ensure(ctx context.Context, name, address string) error // registers the name, or changes its address
	Delete(ctx context.Context, name string) error          // no error if the name is not registered
}

// Controller registers the Pods of one namespace.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string
	Registry  Registry

	pods    listers.PodLister
	handler Handler
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName] // keys of Pods
}

// Run processes Pods until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.Namespace))
	defer factory.Shutdown()
	c.pods = factory.Core().V1().Pods().Lister()
	c.handler = &registrar{c.Registry}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	_, err := factory.Core().V1().Pods().TypedInformer().AddTypedEventHandler(coreinformers.PodHandlerFuncs{
		AddFunc:    func(pod *corev1.Pod) { c.queue.Add(cache.MetaObjectToName(pod)) },
		UpdateFunc: func(_, pod *corev1.Pod) { c.queue.Add(cache.MetaObjectToName(pod)) },
		DeleteFunc: func(pod coreinformers.DeletedPod) { c.queue.Add(pod.GetObjectName()) },
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
		for c.processNextItem(ctx) {
		}
	})
	<-ctx.Done()
	c.queue.ShutDown()
	worker.Wait()
	return nil
}

// Handler does the work.
type Handler interface {
	ObjectCreated(ctx context.Context, pod *corev1.Pod) error
	ObjectDeleted(ctx context.Context, name string) error
}

// registrar is the Handler that registers Pods.
type registrar struct{ registry Registry }

// ObjectCreated registers a Pod.
func (r *registrar) ObjectCreated(ctx context.Context, pod *corev1.Pod) error {
	return r.registry.Ensure(ctx, pod.Name, pod.Status.PodIP)
}

// ObjectDeleted deregisters a Pod.
func (r *registrar) ObjectDeleted(ctx context.Context, name string) error {
	return r.registry.Delete(ctx, name)
}

// processNextItem takes a key from the queue and lets the Handler handle its Pod. It retries what fails.
func (c *Controller) processNextItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)

	pod, err := c.pods.Pods(key.Namespace).Get(key.Name)
	switch {
	case err == nil:
		err = c.handler.ObjectCreated(ctx, pod)
	case apierrors.IsNotFound(err):
		err = c.handler.ObjectDeleted(ctx, key.Name)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to handle the Pod, will retry", "pod", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

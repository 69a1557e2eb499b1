// Package neverupdated registers the addresses of Pods outside the cluster.
package neverupdated

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
	handler *handler
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName] // keys of Pods
}

// Run processes Pods until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.Namespace))
	defer factory.Shutdown()
	c.pods = factory.Core().V1().Pods().Lister()
	c.handler = &handler{registry: c.Registry, registered: map[string]string{}}
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

// handler registers Pods, and spares the registry calls that change nothing.
type handler struct {
	registry   Registry
	registered map[string]string // the name of each registered Pod, and its address
}

// ObjectCreated registers a new Pod. A Pod that is registered already is left alone.
func (h *handler) ObjectCreated(ctx context.Context, pod *corev1.Pod) error {
	if _, ok := h.registered[pod.Name]; ok {
		return nil
	}
	return h.register(ctx, pod)
}

// ObjectUpdated registers a Pod with its new address.
func (h *handler) ObjectUpdated(ctx context.Context, pod *corev1.Pod) error {
	if h.registered[pod.Name] == pod.Status.PodIP {
		return nil
	}
	return h.register(ctx, pod)
}

// ObjectDeleted deregisters a Pod.
func (h *handler) ObjectDeleted(ctx context.Context, name string) error {
	if err := h.registry.Delete(ctx, name); err != nil {
		return err
	}
	delete(h.registered, name)
	return nil
}

func (h *handler) register(ctx context.Context, pod *corev1.Pod) error {
	if err := h.registry.Ensure(ctx, pod.Name, pod.Status.PodIP); err != nil {
		return err
	}
	h.registered[pod.Name] = pod.Status.PodIP
	return nil
}

// processNextItem takes a key from the queue and lets the handler handle its Pod. It retries what fails.
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
		if err == nil {
			err = c.handler.ObjectUpdated(ctx, pod) // does nothing if the address is the same
		}
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

// Package fallsthrough registers the addresses of Pods outside the cluster.
package fallsthrough

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
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

	handler handler
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName] // keys of Pods
}

// Run processes Pods until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.Namespace))
	defer factory.Shutdown()
	c.handler = handler{c.Registry}
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

// handler does what follows from the state of a Pod.
type handler struct{ registry Registry }

func (h handler) ObjectCreated(ctx context.Context, pod *corev1.Pod) error {
	return h.registry.Ensure(ctx, pod.Name, pod.Status.PodIP)
}

func (h handler) ObjectDeleted(ctx context.Context, name string) error {
	return h.registry.Delete(ctx, name)
}

// get returns the current Pod from the API server, and whether it exists.
func (c *Controller) get(ctx context.Context, key cache.ObjectName) (pod *corev1.Pod, exists bool, err error) {
	pod, err = c.Client.CoreV1().Pods(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	return pod, err == nil, err
}

// processNextItem takes a key from the queue and handles its Pod.
func (c *Controller) processNextItem(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)

	pod, exists, err := c.get(ctx, key)
	if err != nil {
		logger.Error(err, "Failed to get the Pod, will retry", "pod", key)
		c.queue.AddRateLimited(key)
	}
	if exists {
		err = c.handler.ObjectCreated(ctx, pod)
	} else {
		logger.Info("The Pod is gone", "pod", key)
		err = c.handler.ObjectDeleted(ctx, key.Name)
	}
	if err != nil {
		logger.Error(err, "Failed to handle the Pod, will retry", "pod", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

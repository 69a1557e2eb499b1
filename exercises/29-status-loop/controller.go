// Package statusloop creates a load balancer in the cloud for each Service that asks for one.
package statusloop

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Cloud is where the load balancers are. Ensure creates one, or finds the one that exists, and returns its address.
type Cloud interface {
	Ensure(ctx context.Context, name string) (address string, err error)
}

// Ready is the type of the condition that says whether the load balancer works.
const Ready = "LoadBalancerReady"

// resync is how often each load balancer is compared with the cloud, which has no watch.
const resync = 30 * time.Second

// Controller creates load balancers for the Services of type LoadBalancer in one namespace.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string
	Cloud     Cloud

	services listers.ServiceLister
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// Run reconciles until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, resync, informers.WithNamespace(c.Namespace))
	defer factory.Shutdown()
	c.services = factory.Core().V1().Services().Lister()
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	_, err := factory.Core().V1().Services().TypedInformer().AddTypedEventHandler(coreinformers.ServiceHandlerFuncs{
		AddFunc:    func(service *corev1.Service) { c.queue.Add(cache.MetaObjectToName(service)) },
		UpdateFunc: func(_, service *corev1.Service) { c.queue.Add(cache.MetaObjectToName(service)) },
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
	if err := c.reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff", "service", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile makes the cloud match a Service, and writes the outcome into its status.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return err
	}
	address, err := c.Cloud.Ensure(ctx, key.String())
	if err != nil {
		return fmt.Errorf("ensure the load balancer of %s: %w", key, err)
	}
	return c.updateStatus(ctx, service, address)
}

// updateStatus writes the address and the condition into the status of the Service.
func (c *Controller) updateStatus(ctx context.Context, service *corev1.Service, address string) error {
	updated := service.DeepCopy()
	updated.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	ready := metav1.Condition{
		Type: Ready, Status: metav1.ConditionTrue, Reason: "Created", LastTransitionTime: metav1.Now(),
		Message: "the load balancer works",
	}
	meta.RemoveStatusCondition(&updated.Status.Conditions, Ready)
	updated.Status.Conditions = append(updated.Status.Conditions, ready)
	_, err := c.Client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update the status of Service %s: %w", klog.KObj(service), err)
	}
	return nil
}

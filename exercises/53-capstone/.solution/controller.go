// Package capstone creates a Service for each Deployment that asks for one.
package capstone

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Port is the annotation of a Deployment that asks for a Service. Its value is the Service's port.
const Port = "services.controllers.example.com/port"

// Run keeps a Service for each annotated Deployment of the namespace until ctx is cancelled.
func Run(ctx context.Context, client kubernetes.Interface, namespace string) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	defer factory.Shutdown()
	c := &controller{
		client:      client,
		deployments: factory.Apps().V1().Deployments().Lister(),
		services:    factory.Core().V1().Services().Lister(),
		queue:       workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	return c.run(ctx, factory)
}

// controller creates Services. A Service has the name of its Deployment, so their keys are the same.
type controller struct {
	client      kubernetes.Interface
	deployments appslisters.DeploymentLister
	services    listers.ServiceLister
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func (c *controller) run(ctx context.Context, factory informers.SharedInformerFactory) error {
	logger := klog.FromContext(ctx)
	_, err := factory.Apps().V1().Deployments().TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc:    func(deployment *appsv1.Deployment) { c.queue.Add(cache.MetaObjectToName(deployment)) },
		UpdateFunc: func(_, deployment *appsv1.Deployment) { c.queue.Add(cache.MetaObjectToName(deployment)) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	_, err = factory.Core().V1().Services().TypedInformer().AddTypedEventHandler(coreinformers.ServiceHandlerFuncs{
		AddFunc:    func(service *corev1.Service) { c.queue.Add(cache.MetaObjectToName(service)) },
		UpdateFunc: func(_, service *corev1.Service) { c.queue.Add(cache.MetaObjectToName(service)) },
		DeleteFunc: func(service coreinformers.DeletedService) { c.queue.Add(service.GetObjectName()) },
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
			for c.processNextWorkItem(context.WithoutCancel(ctx)) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
	return nil
}

func (c *controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff", "deployment", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile creates, updates or deletes the Service of a Deployment. When the Deployment is gone, garbage collection
// deletes the Service.
func (c *controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	deployment, err := c.deployments.Deployments(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || deployment.DeletionTimestamp != nil {
		return err
	}
	port, err := portOf(deployment)
	if err != nil {
		// What is wanted is unknown, so a Service that exists stays as it is. The error is not returned, since a retry does not
		// help: the event of the correction brings the key back.
		klog.FromContext(ctx).Error(err, "Leaving the Service as it is", "deployment", klog.KObj(deployment))
		return nil
	}
	wanted := port != 0
	existing, err := c.services.Services(key.Namespace).Get(key.Name)
	switch {
	case apierrors.IsNotFound(err):
		if wanted {
			return c.create(ctx, deployment, port)
		}
		return nil
	case err != nil:
		return err
	case !metav1.IsControlledBy(existing, deployment):
		return nil // somebody else's
	case !wanted:
		return c.delete(ctx, existing)
	}
	return c.update(ctx, existing, deployment, port)
}

// portOf returns the port that a Deployment asks for, or 0 if it asks for none.
func portOf(deployment *appsv1.Deployment) (int32, error) {
	text, ok := deployment.Annotations[Port]
	if !ok || deployment.Spec.Selector == nil {
		return 0, nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("annotation %s: %q is not a number from 1 to 65535", Port, text)
	}
	return int32(port), nil
}

func (c *controller) create(ctx context.Context, deployment *appsv1.Deployment, port int32) error {
	_, err := c.client.CoreV1().Services(deployment.Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: deployment.Namespace, Name: deployment.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: corev1.ServiceSpec{
			Selector: maps.Clone(deployment.Spec.Selector.MatchLabels),
			Ports:    []corev1.ServicePort{{Port: port}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Service %s: %w", klog.KObj(deployment), err)
	}
	return nil
}

// update sets what the Deployment decides, and leaves the rest of the Service as it is.
func (c *controller) update(ctx context.Context, existing *corev1.Service, deployment *appsv1.Deployment, port int32) error {
	updated := existing.DeepCopy() // the object in the cache is shared
	updated.Spec.Selector = maps.Clone(deployment.Spec.Selector.MatchLabels)
	ports, target := updated.Spec.Ports, intstr.FromInt32(port)
	isDefault := func(p corev1.ServicePort) bool {
		return p.TargetPort == (intstr.IntOrString{}) || p.TargetPort == target
	}
	if len(ports) != 1 || ports[0].Port != port || !isDefault(ports[0]) {
		updated.Spec.Ports = []corev1.ServicePort{{Port: port}}
	}
	if equality.Semantic.DeepEqual(existing, updated) {
		return nil
	}
	if _, err := c.client.CoreV1().Services(existing.Namespace).Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update Service %s: %w", klog.KObj(existing), err)
	}
	return nil
}

func (c *controller) delete(ctx context.Context, service *corev1.Service) error {
	err := c.client.CoreV1().Services(service.Namespace).Delete(ctx, service.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(service.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Service %s: %w", klog.KObj(service), err)
	}
	return nil
}

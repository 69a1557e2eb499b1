// Package lostdeletion replaces the Pods labelled app=frontend when ConfigMap "frontend-config" changes, by deleting them;
// their Deployment creates new ones.
package lostdeletion

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const configName = "frontend-config"

var frontend = labels.SelectorFromSet(labels.Set{"app": "frontend"})

// Controller replaces stale Pods in one namespace.
type Controller struct {
	client    kubernetes.Interface
	namespace string
	pods      listers.PodNamespaceLister
	configs   listers.ConfigMapNamespaceLister
	queue     workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// Run reconciles until ctx is cancelled.
func Run(ctx context.Context, client kubernetes.Interface, namespace string) error {
	podFactory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	configFactory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, configName).String()
		}))
	c := &Controller{
		client: client, namespace: namespace,
		pods:    podFactory.Core().V1().Pods().Lister().Pods(namespace),
		configs: configFactory.Core().V1().ConfigMaps().Lister().ConfigMaps(namespace),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	enqueue := func(obj any) { c.queue.Add(cache.MetaObjectToName(obj.(*corev1.Pod))) }
	enqueueAll := func(any) {
		pods, _ := c.pods.List(frontend)
		for _, pod := range pods {
			enqueue(pod)
		}
	}
	_, err := podFactory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	if err != nil {
		return err
	}
	_, err = configFactory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueueAll,
		UpdateFunc: func(_, obj any) { enqueueAll(obj) },
	})
	if err != nil {
		return err
	}
	for _, factory := range []informers.SharedInformerFactory{podFactory, configFactory} {
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
		if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			return nil // ctx was cancelled
		}
	}
	context.AfterFunc(ctx, c.queue.ShutDown)
	for c.processNextWorkItem(ctx) {
	}
	return nil
}

func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed", "pod", key)
	}
	c.queue.Forget(key)
	return true
}

func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	pod, err := c.pods.Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	config, err := c.configs.Get(configName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	changed := lastChange(config)
	if pod.DeletionTimestamp != nil || !frontend.Matches(labels.Set(pod.Labels)) || pod.CreationTimestamp.After(changed) {
		return nil
	}
	if wait := time.Until(changed.Add(time.Second)); wait > 0 {
		c.queue.AddAfter(key, wait) // a replacement made in the second of the change would look stale
		return nil
	}
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if err := c.client.CoreV1().Pods(c.namespace).Delete(ctx, key.Name, options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Pod %s: %w", key, err)
	}
	return nil
}

// lastChange returns when the config was created or last changed.
func lastChange(config *corev1.ConfigMap) time.Time {
	changed := config.CreationTimestamp.Time
	for _, entry := range config.ManagedFields {
		if entry.Time != nil && entry.Time.After(changed) {
			changed = entry.Time.Time
		}
	}
	return changed
}

// Package renamed runs a Deployment for each app.
package renamed

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// AppLabel is the label of the ConfigMaps that describe an app. Their keys are "deployment", the name of the app's
// Deployment, and "image".
const AppLabel = "apps.controllers.example.com/app"

// Controller runs the apps of one namespace.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string

	apps        listers.ConfigMapLister
	deployments appslisters.DeploymentLister
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName] // keys of ConfigMaps
}

// Run reconciles until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.Namespace))
	defer factory.Shutdown()
	c.apps, c.deployments = factory.Core().V1().ConfigMaps().Lister(), factory.Apps().V1().Deployments().Lister()
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	_, err := factory.Core().V1().ConfigMaps().TypedInformer().AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    func(app *corev1.ConfigMap) { c.queue.Add(cache.MetaObjectToName(app)) },
		UpdateFunc: func(_, app *corev1.ConfigMap) { c.queue.Add(cache.MetaObjectToName(app)) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	_, err = factory.Apps().V1().Deployments().TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc:    c.enqueueOwner,
		UpdateFunc: func(_, deployment *appsv1.Deployment) { c.enqueueOwner(deployment) },
		DeleteFunc: func(deleted appsinformers.DeletedDeployment) {
			if deleted.OptionalObj != nil {
				c.enqueueOwner(deleted.OptionalObj)
			}
		},
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

// enqueueOwner adds the key of the app that a Deployment belongs to.
func (c *Controller) enqueueOwner(deployment *appsv1.Deployment) {
	if owner := metav1.GetControllerOf(deployment); owner != nil && owner.Kind == "ConfigMap" {
		c.queue.Add(cache.NewObjectName(deployment.Namespace, owner.Name))
	}
}

func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff", "app", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile creates the Deployment of an app. When the app is gone, garbage collection deletes the Deployment.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	app, err := c.apps.ConfigMaps(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, ok := app.Labels[AppLabel]; !ok {
		return nil
	}
	return c.ensureDeployment(ctx, app, app.Data["deployment"])
}

// ensureDeployment creates the Deployment of an app, if there is none. A Deployment of somebody else is left alone.
func (c *Controller) ensureDeployment(ctx context.Context, app *corev1.ConfigMap, name string) error {
	existing, err := c.deployments.Deployments(app.Namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err):
		if _, err := c.Client.AppsV1().Deployments(app.Namespace).Create(ctx, deploymentFor(app, name), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create Deployment %s/%s: %w", app.Namespace, name, err)
		}
		return nil
	case err != nil:
		return err
	case !metav1.IsControlledBy(existing, app):
		return fmt.Errorf("create Deployment %s: it exists, and belongs to somebody else", klog.KObj(existing))
	}
	return nil // to keep it short, its image is not updated
}

func deploymentFor(app *corev1.ConfigMap, name string) *appsv1.Deployment {
	selector := map[string]string{"app": app.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: app.Namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(app, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: app.Data["image"]}}},
			},
		},
	}
}

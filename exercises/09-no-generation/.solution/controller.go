// Package nogeneration replaces the Pods of the frontend when their config changes.
package nogeneration

import (
	"bytes"
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// ConfigName is the name of the ConfigMap that the Pods of the frontend read when they start.
const ConfigName = "frontend-config"

var frontend = labels.SelectorFromSet(labels.Set{"app": "frontend"})

// Controller replaces Pods in one namespace. It is edge-triggered, as in lesson 2.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string

	pods listers.PodLister
}

// Run handles events until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	inNamespace := informers.WithNamespace(c.Namespace)
	podFactory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, inNamespace)
	configFactory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, inNamespace,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, ConfigName).String()
		}))
	defer configFactory.Shutdown()
	defer podFactory.Shutdown()

	c.pods = podFactory.Core().V1().Pods().Lister()
	_, err := configFactory.Core().V1().ConfigMaps().TypedInformer().AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		UpdateFunc: func(old, config *corev1.ConfigMap) {
			if maps.Equal(old.Data, config.Data) && maps.EqualFunc(old.BinaryData, config.BinaryData, bytes.Equal) {
				return // a resync, or a change of metadata
			}
			c.replacePods(ctx)
		},
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}

	podFactory.StartWithContext(ctx)
	if err := podFactory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil // ctx was cancelled
	}
	configFactory.StartWithContext(ctx)
	<-ctx.Done()
	return nil
}

// replacePods deletes the Pods of the frontend; their Deployment creates new ones.
func (c *Controller) replacePods(ctx context.Context) {
	logger := klog.FromContext(ctx)
	pods, err := c.pods.Pods(c.Namespace).List(frontend)
	if err != nil {
		logger.Error(err, "Failed to list Pods, will not retry")
		return
	}
	for _, pod := range pods {
		err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			logger.Error(err, "Failed to delete Pod, will not retry", "pod", klog.KObj(pod))
		}
	}
}

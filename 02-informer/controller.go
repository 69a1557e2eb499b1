// Package informer is a controller that watches instead of polling: the API server sends changes, an informer
// keeps a copy of the objects up to date, and calls the controller's event handlers.
//
// Like lesson 1, the controller logs which Node each Pod runs on. When the ConfigMap "frontend-config" changes,
// it deletes the Pods labelled app=frontend, and their Deployment replaces them.
//
// The controller is edge-triggered: a handler does the work when it is called. If the work fails, or the
// controller isn't running when the config changes, the change is lost.
package informer

import (
	"context"
	"maps"
	"time"

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

// Controller replaces stale Pods in one namespace.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string        // the only namespace whose Pods it deletes
	Resync    time.Duration // the resync period of the informers; 0 for no resyncs

	pods listers.PodLister // reads the informer's store, not the API server; set by Run
}

// Run handles events until ctx is cancelled, and returns once all goroutines that it started have stopped.
// It returns an error only if it could not register its handlers.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	inNamespace := informers.WithNamespace(c.Namespace)
	podFactory := informers.NewSharedInformerFactoryWithOptions(c.Client, c.Resync, inNamespace)
	// With the field selector, the API server sends this ConfigMap only, and RBAC can allow access to it by name.
	configFactory := informers.NewSharedInformerFactoryWithOptions(c.Client, c.Resync, inNamespace,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, ConfigName).String()
		}))
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		podFactory.Shutdown()
		configFactory.Shutdown()
		logger.Info("Stopped")
	}()

	pods := podFactory.Core().V1().Pods()
	c.pods = pods.Lister()
	_, err := pods.TypedInformer().AddTypedEventHandler(coreinformers.PodHandlerFuncs{
		AddFunc:    func(pod *corev1.Pod) { onAdd(ctx, pod) },
		UpdateFunc: func(old, pod *corev1.Pod) { onUpdate(ctx, old, pod) },
		DeleteFunc: func(pod coreinformers.DeletedPod) { onDelete(ctx, pod) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	configs := configFactory.Core().V1().ConfigMaps().TypedInformer()
	_, err = configs.AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		UpdateFunc: func(old, config *corev1.ConfigMap) { c.onUpdateConfig(ctx, old, config) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}

	// Sync the Pods first, so that the lister has all of them when the config changes.
	podFactory.StartWithContext(ctx)
	if err := podFactory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil // ctx was cancelled
	}
	configFactory.StartWithContext(ctx)
	if err := configFactory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil
	}
	logger.Info("Caches synced")
	<-ctx.Done()
	return nil
}

func onAdd(ctx context.Context, pod *corev1.Pod) {
	klog.FromContext(ctx).Info("onAdd", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
}

func onUpdate(ctx context.Context, old, pod *corev1.Pod) {
	// A resync passes the same object twice.
	changed := old.ResourceVersion != pod.ResourceVersion
	klog.FromContext(ctx).Info("onUpdate", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "changed", changed)
}

func onDelete(ctx context.Context, pod coreinformers.DeletedPod) {
	logger := klog.FromContext(ctx)
	if pod.FinalStateUnknown != nil {
		// A tombstone: the informer missed the delete event. The Pod's last state is unknown.
		logger.Info("onDelete, final state unknown", "pod", klog.KObj(pod))
		return
	}
	logger.Info("onDelete", "pod", klog.KObj(pod), "node", pod.OptionalObj.Spec.NodeName)
}

// onUpdateConfig deletes the Pods of the frontend if the data of the config has changed. Nothing retries a deletion
// that fails.
func (c *Controller) onUpdateConfig(ctx context.Context, old, config *corev1.ConfigMap) {
	logger := klog.FromContext(ctx)
	if maps.Equal(old.Data, config.Data) {
		return // a resync, or a change of metadata
	}
	logger.Info("Config changed", "configMap", klog.KObj(config))
	pods, err := c.pods.Pods(c.Namespace).List(frontend)
	if err != nil {
		logger.Error(err, "Failed to list Pods, will not retry")
		return
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		logger.Info("Pod is older than its config, deleting it", "pod", klog.KObj(pod))
		// Without the precondition, this could delete a new Pod of the same name.
		err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			logger.Error(err, "Failed to delete Pod, will not retry", "pod", klog.KObj(pod))
		}
	}
}

// Package informer is a controller that does not ask: it is told. The API server sends what changes, an
// informer keeps a copy of it, and calls us.
//
// Its job is that of lesson 1: say on which node each Pod runs, and when ConfigMap "frontend-config"
// changes, replace the Pods labelled app=frontend by deleting them; their Deployment brings them back.
// It does the job at the moment it is told. What goes wrong at that moment is lost.
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

// ConfigName is the name of the ConfigMap that the frontend reads when it starts.
const ConfigName = "frontend-config"

var frontend = labels.SelectorFromSet(labels.Set{"app": "frontend"})

// Controller does the job in one namespace.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string        // the only namespace whose Pods it deletes
	Resync    time.Duration // how often the handlers are told of everything again; 0 for never

	pods listers.PodLister // reads the informer's copy, not the API server
}

// Run works until ctx ends, and returns when everything that it started has stopped. It returns an error
// if it could not begin.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	inNamespace := informers.WithNamespace(c.Namespace)
	podFactory := informers.NewSharedInformerFactoryWithOptions(c.Client, c.Resync, inNamespace)
	// Of the ConfigMaps we want one. The others are not sent, and we need no right to see them.
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

	// Pods first. A change of the config must find all of them in the lister.
	podFactory.StartWithContext(ctx)
	if err := podFactory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil // told to stop before there was anything to do
	}
	configFactory.StartWithContext(ctx)
	if err := configFactory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil
	}
	logger.Info("In step with the API server")
	<-ctx.Done()
	return nil
}

func onAdd(ctx context.Context, pod *corev1.Pod) {
	klog.FromContext(ctx).Info("onAdd", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
}

func onUpdate(ctx context.Context, old, pod *corev1.Pod) {
	// A resync calls us with what we already know.
	changed := old.ResourceVersion != pod.ResourceVersion
	klog.FromContext(ctx).Info("onUpdate", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "changed", changed)
}

func onDelete(ctx context.Context, pod coreinformers.DeletedPod) {
	logger := klog.FromContext(ctx)
	if pod.FinalStateUnknown != nil {
		// The watch missed the deletion. What we have is the Pod as it was some time before.
		logger.Info("onDelete, missed", "pod", klog.KObj(pod))
		return
	}
	logger.Info("onDelete", "pod", klog.KObj(pod), "node", pod.OptionalObj.Spec.NodeName)
}

// onUpdateConfig replaces the Pods of the frontend, now, because there is no later.
func (c *Controller) onUpdateConfig(ctx context.Context, old, config *corev1.ConfigMap) {
	logger := klog.FromContext(ctx)
	if maps.Equal(old.Data, config.Data) {
		return // a resync, or a change that the Pods do not read
	}
	logger.Info("The config has changed", "configMap", klog.KObj(config))
	pods, err := c.pods.Pods(c.Namespace).List(frontend)
	if err != nil {
		logger.Error(err, "No Pod is replaced")
		return
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		logger.Info("Pod is older than its config, deleting it", "pod", klog.KObj(pod))
		// The UID makes sure that we delete the Pod we saw, not a new one of the same name.
		err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			logger.Error(err, "Pod is not replaced, and nobody will try again", "pod", klog.KObj(pod))
		}
	}
}

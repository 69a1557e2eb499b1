package informer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// WatchPods puts an informer for the Pods of a namespace together by hand. It returns its two halves:
// the store, a copy of the Pods that is kept up to date, and the controller, which keeps it so while it
// runs, and tells the handler what it has changed.
func WatchPods(client kubernetes.Interface, namespace string, handler cache.ResourceEventHandler) (cache.Store, cache.Controller) {
	// The two questions that a controller may ask the API server: how is it, and what changes?
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods(namespace).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(namespace).Watch(ctx, options)
		},
	}
	return cache.NewInformerWithOptions(cache.InformerOptions{
		// The client may be a fake, which cannot do all that an API server can; this asks it.
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(listWatch, client),
		ObjectType:    &corev1.Pod{},
		Handler:       handler,
	})
}

// LogPods logs on which Node each Pod is.
func LogPods(logger klog.Logger) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			pod := object.(*corev1.Pod)
			logger.Info("onAdd", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
		},
		UpdateFunc: func(_, object any) {
			pod := object.(*corev1.Pod)
			logger.Info("onUpdate", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
		},
		DeleteFunc: func(object any) {
			// Not always a *Pod: if the watch missed the deletion, all we get is a tombstone.
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				logger.Info("onDelete, missed", "pod", tombstone.Key)
				return
			}
			pod := object.(*corev1.Pod)
			logger.Info("onDelete", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
		},
	}
}

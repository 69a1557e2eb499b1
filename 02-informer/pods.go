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

// WatchPods builds an informer for the Pods of a namespace by hand. It returns the informer's two parts: a store,
// which holds a copy of the Pods, and a controller. While the controller runs, it keeps the store up to date and
// calls the handler after each change.
func WatchPods(client kubernetes.Interface, namespace string, handler cache.ResourceEventHandler) (cache.Store, cache.Controller) {
	// An informer needs two requests: list the objects, and watch for changes.
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods(namespace).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(namespace).Watch(ctx, options)
		},
	}
	return cache.NewInformerWithOptions(cache.InformerOptions{
		// A fake client doesn't support WatchList. This tells the informer, which then sends a list request instead.
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(listWatch, client),
		ObjectType:    &corev1.Pod{},
		Handler:       handler,
	})
}

// LogPods returns a handler that logs which Node each Pod runs on.
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
			// If the informer missed the delete event, the object is a tombstone instead of a *Pod.
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				logger.Info("onDelete, final state unknown", "pod", tombstone.Key)
				return
			}
			pod := object.(*corev1.Pod)
			logger.Info("onDelete", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
		},
	}
}

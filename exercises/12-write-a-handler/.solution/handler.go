// Package writeahandler connects an informer with a queue.
package writeahandler

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Handler returns the event handlers of a controller. They add the key, namespace/name, of each object that was
// created, changed or deleted to the queue, and do nothing else.
func Handler(queue workqueue.TypedRateLimitingInterface[string]) cache.ResourceEventHandler {
	enqueue := func(object any) {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		if err != nil {
			utilruntime.HandleError(err)
			return
		}
		queue.Add(key)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(oldObject, newObject any) {
			if oldObject.(metav1.Object).GetResourceVersion() != newObject.(metav1.Object).GetResourceVersion() {
				enqueue(newObject)
			}
		},
		DeleteFunc: enqueue,
	}
}

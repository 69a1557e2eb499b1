// Package writeahandler connects an informer with a queue.
package writeahandler

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Handler returns the event handlers of a controller. They add the key, namespace/name, of each object that was
// created, changed or deleted to the queue, and do nothing else.
func Handler(queue workqueue.TypedRateLimitingInterface[string]) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			// Write me.
		},
		UpdateFunc: func(oldObject, newObject any) {
			// Write me.
		},
		DeleteFunc: func(object any) {
			// Write me.
		},
	}
}

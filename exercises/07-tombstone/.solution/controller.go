// Package tombstone counts the Pods on each Node.
package tombstone

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Counter counts the Pods on each Node. It learns about them from an informer.
type Counter struct {
	client kubernetes.Interface

	mu   sync.Mutex
	pods map[string]int // by the name of the Node; Pods without a Node are not counted
}

// New returns a Counter that makes no request before Run is called.
func New(client kubernetes.Interface) *Counter {
	return &Counter{client: client, pods: map[string]int{}}
}

// Pods returns the number of Pods on a Node.
func (c *Counter) Pods(node string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[node]
}

func (c *Counter) add(node string, count int) {
	if node == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[node] += count
}

// Run counts until ctx is cancelled.
func (c *Counter) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactory(c.client, 0)
	defer factory.Shutdown()
	_, err := factory.Core().V1().Pods().Informer().AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			pod := object.(*corev1.Pod)
			c.add(pod.Spec.NodeName, 1)
		},
		UpdateFunc: func(oldObject, newObject any) {
			// Most Pods get their Node in an update. After trouble with the watch, the new Pod may be another one of the same name.
			c.add(oldObject.(*corev1.Pod).Spec.NodeName, -1)
			c.add(newObject.(*corev1.Pod).Spec.NodeName, 1)
		},
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			pod, ok := object.(*corev1.Pod)
			if !ok {
				return
			}
			c.add(pod.Spec.NodeName, -1)
			logger.Info("Pod deleted", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
		},
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	return nil
}

// Package tombstone releases the address of each Pod that is deleted.
package tombstone

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Run calls release with the address of each Pod that is deleted, until ctx is cancelled.
func Run(ctx context.Context, client kubernetes.Interface, release func(address string)) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			pod := obj.(*corev1.Pod)
			klog.FromContext(ctx).Info("Pod is gone, releasing its address", "pod", klog.KObj(pod))
			release(pod.Status.PodIP)
		},
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

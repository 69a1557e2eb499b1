package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// tombstone assumes that OnDelete always gets a Pod. It gets a tombstone if the watch missed the delete event.
func tombstone(ctx context.Context, client kubernetes.Interface, namespace string) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(object any) {
			pod := object.(*corev1.Pod)
			logger.Info("onDelete", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
		},
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	defer factory.Shutdown()
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return err
	}
	logger.Info("Caches synced")
	<-ctx.Done()
	return nil
}

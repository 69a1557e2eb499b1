package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
)

// mutation sets a label on a Pod that it got from an informer. But the Pod is not a copy: every other reader of the
// cache has a pointer to the same object.
func mutation(ctx context.Context, client kubernetes.Interface, namespace string) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	pods := factory.Core().V1().Pods()
	_, err := pods.TypedInformer().AddTypedEventHandler(coreinformers.PodHandlerFuncs{
		AddFunc: func(pod *corev1.Pod) {
			pod.Labels["seen"] = "yes" // the fix: pod = pod.DeepCopy(), one line above
		},
	})
	if err != nil {
		return err
	}
	defer factory.Shutdown()
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return err
	}
	fmt.Println("caches synced, and nothing seems wrong")
	<-ctx.Done()
	return nil
}

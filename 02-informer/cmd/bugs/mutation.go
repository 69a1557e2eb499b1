package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
)

// mutation writes to an object that it got from an informer. It wants to send the Pod somewhere with one
// more label; but the Pod is not its own. It belongs to everyone who reads that cache.
func mutation(ctx context.Context, client kubernetes.Interface, namespace string) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	pods := factory.Core().V1().Pods()
	_, err := pods.TypedInformer().AddTypedEventHandler(coreinformers.PodHandlerFuncs{
		AddFunc: func(pod *corev1.Pod) {
			pod.Labels["seen"] = "yes" // the cure: pod = pod.DeepCopy(), one line above
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
	fmt.Println("in step, and nothing seems wrong")
	<-ctx.Done()
	return nil
}

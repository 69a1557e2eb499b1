package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// unsynced reads from a cache before it has synced.
func unsynced(ctx context.Context, client kubernetes.Interface, namespace string) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	lister := factory.Core().V1().Pods().Lister()

	factory.StartWithContext(ctx) // until the program ends, right after this function
	cached, err := lister.List(labels.Everything())
	if err != nil {
		return err
	}
	fmt.Printf("lister, before the sync:  %d Pods\n", len(cached)) // A controller would clean up for deleted Pods here.

	live, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	fmt.Printf("API server:               %d Pods\n", len(live.Items))

	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return err
	}
	if cached, err = lister.List(labels.Everything()); err != nil {
		return err
	}
	fmt.Printf("lister, after the sync:   %d Pods\n", len(cached))
	return nil
}

// Program pods logs which Node each Pod runs on, with an informer that is built by hand. Like kubectl, it works in
// the namespace of the kubeconfig's current context.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"example.com/controllers/informer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "pods:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := kubeconfig.ClientConfig()
	if err != nil {
		return err
	}
	namespace, _, err := kubeconfig.Namespace()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	store, controller := informer.WatchPods(client, namespace, informer.LogPods(klog.FromContext(ctx)))
	controller.RunWithContext(ctx)
	klog.FromContext(ctx).Info("Stopped", "store", store.ListKeys())
	return nil
}

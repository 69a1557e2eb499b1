// Program naive-loop runs the controller of lesson 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	naiveloop "example.com/controllers/naive-loop"
	"example.com/controllers/naive-loop/internal/clusterconfig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "naive-loop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig; if empty, use the ServiceAccount of the Pod that this runs in")
	namespace := flag.String("namespace", "", "the only namespace whose Pods are deleted (required)")
	interval := flag.Duration("interval", 5*time.Second, "pause between two iterations of the loop")
	klog.InitFlags(nil)
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *namespace == "":
		return errors.New("--namespace is required: the namespace whose Pods may be deleted")
	case *interval <= 0:
		return fmt.Errorf("--interval is %s; it must be more than 0", *interval)
	}

	config, err := clientConfig(*kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	version, err := client.Discovery().ServerVersionWithContext(ctx)
	if ctx.Err() != nil {
		return nil // stopped before there was anything to do
	}
	if err != nil {
		return fmt.Errorf("the API server at %s does not answer; is the address right, and is the server running? %w", config.Host, err)
	}
	controller := &naiveloop.Controller{
		Client:    client,
		Namespace: *namespace,
		NodeName:  os.Getenv("NODE_NAME"), // from the downward API; see manifests/deployment.yaml
		Interval:  *interval,
	}
	klog.FromContext(ctx).Info("Starting", "namespace", *namespace, "interval", *interval, "server", version.GitVersion)
	controller.Run(ctx)
	return nil
}

// clientConfig returns the API server's address and the credentials to use: those of the kubeconfig or, without
// one, those of the Pod's ServiceAccount.
func clientConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clusterconfig.Load(kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("not in a Pod, and no --kubeconfig or KUBECONFIG: %w", err)
	}
	return config, nil
}

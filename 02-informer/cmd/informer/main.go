// Program informer runs the controller of lesson 2.
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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"example.com/controllers/informer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig; if empty, use the ServiceAccount of the Pod that this runs in")
	namespace := flag.String("namespace", "", "the only namespace whose Pods are deleted (required)")
	resync := flag.Duration("resync", 0, "resync period: how often the informers call their handlers again for every object; 0 for never")
	klog.InitFlags(nil)
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *namespace == "":
		return errors.New("--namespace is required: the namespace whose Pods may be deleted")
	case *resync < 0:
		return fmt.Errorf("--resync is %s; it must not be negative", *resync)
	}

	config, err := clientConfig(*kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := checkNamespace(ctx, client, config.Host, *namespace); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it started
		}
		return err
	}
	klog.FromContext(ctx).Info("Starting", "namespace", *namespace, "resync", *resync)
	controller := &informer.Controller{Client: client, Namespace: *namespace, Resync: *resync}
	return controller.Run(ctx)
}

// startTimeout is how long the API server may take to answer the first request.
const startTimeout = 30 * time.Second

// checkNamespace checks that the API server is reachable and that the namespace exists. An informer would report
// neither: it retries forever, and to list the Pods of a namespace that doesn't exist is not an error.
func checkNamespace(ctx context.Context, client kubernetes.Interface, host, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no namespace %q on %s; create it, or pass another one with --namespace", namespace, host)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("no permission to get namespace %q; does it exist, and has manifests/rbac.yaml been applied to it? %w", namespace, err)
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return fmt.Errorf("get namespace %q on %s: %w", namespace, host, err)
	}
	return fmt.Errorf("the API server at %s does not answer; is the address right, and is the server running? %w", host, err)
}

// clientConfig returns the API server's address and the credentials to use: those of the kubeconfig or, without
// one, those of the Pod's ServiceAccount.
func clientConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := load(kubeconfig)
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

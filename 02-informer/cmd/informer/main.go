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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig; without one, the account of the Pod that this runs in")
	namespace := flag.String("namespace", "", "namespace to work in; Pods are deleted there (required)")
	resync := flag.Duration("resync", 0, "how often the handlers are called again with everything there is; 0 for never")
	klog.InitFlags(nil)
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *namespace == "":
		return errors.New("--namespace is missing; name the namespace whose Pods may be deleted")
	case *resync < 0:
		return fmt.Errorf("--resync is %s; it must not be less than 0", *resync)
	}

	config, err := clientConfig(*kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := look(ctx, client, config.Host, *namespace); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before there was anything to do
		}
		return err
	}
	klog.FromContext(ctx).Info("Starting", "namespace", *namespace, "resync", *resync)
	controller := &informer.Controller{Client: client, Namespace: *namespace, Resync: *resync}
	return controller.Run(ctx)
}

// look asks once whether the API server answers and the namespace is there. An informer would not say: it
// tries for ever, and a namespace that does not exist has no Pods.
func look(ctx context.Context, client kubernetes.Interface, host, namespace string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no namespace %q on %s; make it, or name another with --namespace", namespace, host)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("may not see namespace %q; is it there, and with the rights of manifests/rbac.yaml? %w", namespace, err)
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return fmt.Errorf("look for namespace %q on %s: %w", namespace, host, err)
	}
	return fmt.Errorf("the API server at %s does not answer; is it the right one, and is it up? %w", host, err)
}

// clientConfig returns who we are to the API server: what a kubeconfig says or, in a Pod, its
// ServiceAccount.
func clientConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
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

// Program workqueue runs the controller of lesson 3.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // metrics of the client
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // metrics of the queue
	"k8s.io/klog/v2"

	"example.com/controllers/workqueue"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "workqueue:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var options workqueue.Options
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`path` of a kubeconfig; if empty, use the Pod's ServiceAccount")
	address := flag.String("address", "127.0.0.1:8080", "`host:port` to serve /metrics, /healthz and /readyz on; port 0 chooses a free one")
	flag.StringVar(&options.Namespace, "namespace", "", "`namespace` whose Pods are watched and deleted (required)")
	flag.IntVar(&options.Workers, "workers", 2, "number of Pods reconciled concurrently")
	flag.DurationVar(&options.Backoff, "backoff", 100*time.Millisecond, "delay before a failed Pod is retried; doubles with each failure")
	flag.DurationVar(&options.MaxBackoff, "max-backoff", time.Minute, "upper bound of that delay")
	flag.IntVar(&options.WarnAfter, "warn-after", 8, "number of failures in a row after which an Event is written; 0 for never")
	flag.DurationVar(&options.Grace, "grace", 10*time.Second, "how long in-flight work may continue after SIGTERM")
	klog.InitFlags(nil)
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if err := options.Validate(); err != nil {
		return err
	}

	config, err := clientConfig(*kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := checkNamespace(ctx, client, config.Host, options.Namespace); err != nil {
		if ctx.Err() != nil {
			return nil // cancelled before there was anything to stop
		}
		return err
	}
	controller, err := workqueue.New(ctx, client, options)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return fmt.Errorf("serve metrics at --address %s: %w", *address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", legacyregistry.Handler())
	mux.HandleFunc("/healthz", controller.Healthz)
	mux.HandleFunc("/readyz", controller.Readyz)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	klog.FromContext(ctx).Info("Starting", "namespace", options.Namespace, "metrics", "http://"+listener.Addr().String()+"/metrics")
	err = controller.Run(ctx)
	err = errors.Join(err, server.Close())
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// startTimeout is how long the API server may take to answer the first request.
const startTimeout = 30 * time.Second

// checkNamespace returns an error if the API server does not answer or the namespace does not exist. Informers would
// report neither: they retry forever, and a list of Pods in a namespace that does not exist is empty.
func checkNamespace(ctx context.Context, client kubernetes.Interface, host, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %q does not exist on %s; create it, or choose another with --namespace", namespace, host)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not allowed to get namespace %q; does it exist, and is manifests/rbac.yaml applied there? %w", namespace, err)
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return fmt.Errorf("get namespace %q from %s: %w", namespace, host, err)
	}
	return fmt.Errorf("the API server at %s does not answer; is the address right, and is it running? %w", host, err)
}

// clientConfig loads the kubeconfig or, if its path is empty, uses the ServiceAccount of the Pod that we run in.
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

// Program network-controller runs the controller of lesson 4.
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // metrics of the client
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // metrics of the queue
	"k8s.io/klog/v2"

	"example.com/controllers/crd"
	"example.com/controllers/crd/generated/clientset/versioned"
	"example.com/controllers/crd/neutron"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "network-controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var options crd.Options
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`path` of a kubeconfig; default: KUBECONFIG, or in a Pod its ServiceAccount")
	address := flag.String("address", "127.0.0.1:8080", "`host:port` to serve /metrics, /healthz and /readyz on; port 0 picks a free one")
	flag.StringVar(&options.Namespace, "namespace", "", "`namespace` of the Networks (required)")
	flag.IntVar(&options.Workers, "workers", 2, "`number` of Networks to reconcile concurrently")
	flag.DurationVar(&options.Backoff, "backoff", 100*time.Millisecond, "wait before the first retry of a failed Network; doubles with each further failure")
	flag.DurationVar(&options.MaxBackoff, "max-backoff", time.Minute, "upper limit of that wait")
	flag.DurationVar(&options.Recheck, "recheck", 5*time.Minute, "interval at which a ready Network is checked for drift in the cloud, plus or minus a fifth")
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
	kube, client, err := newClients(config)
	if err != nil {
		return err
	}
	var cloud *neutron.Cloud
	owner, err := checkAPIServer(ctx, kube, client, config.Host, options.Namespace)
	if err == nil {
		cloud, err = neutron.Connect(ctx)
	}
	if err == nil {
		// Metrics and health are served only afterwards, so it must not take as long as the startup probe waits.
		checkCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = cloud.Check(checkCtx)
		cancel()
		if neutron.IsTemporary(err) { // the status of the Networks will report it
			klog.FromContext(ctx).Error(err, "Cannot reach the cloud, starting anyway")
			err = nil
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before there was anything to do
		}
		return err
	}
	cloud.Owner = owner
	controller, err := crd.New(ctx, kube, client, cloud, options)
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

	klog.FromContext(ctx).Info("Starting", "namespace", options.Namespace, "cloud", cloud.Client.Endpoint, "metrics", "http://"+listener.Addr().String()+"/metrics")
	err = controller.Run(ctx)
	err = errors.Join(err, server.Close())
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// newClients returns clients without client-go's default limit of 5 requests a second, which makes 1,000 Networks take seven
// minutes, with however many workers. The number of workers limits the load, and the API server's priority and fairness protects
// the API server.
func newClients(config *rest.Config) (*kubernetes.Clientset, *versioned.Clientset, error) {
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	client, err := versioned.NewForConfig(config)
	return kube, client, err
}

// startTimeout is how long the API server may take to answer the first requests.
const startTimeout = 30 * time.Second

// checkAPIServer checks once that the API server can be reached, that the namespace exists, and that the controller may
// list its Networks. An informer would not report any of that: it retries forever, and a namespace that does not exist
// has no Networks. It returns the namespace's UID.
func checkAPIServer(ctx context.Context, kube kubernetes.Interface, client versioned.Interface, host, namespace string) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	existing, err := kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no namespace %q on %s; create it, or name another one with --namespace", namespace, host)
	}
	if err == nil {
		_, err = client.SamplecrdV1().Networks(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	}
	switch {
	case err == nil:
		return existing.UID, nil
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%s has no resource networks.samplecrd.k8s.io; apply manifests/samplecrd.k8s.io_networks.yaml first", host)
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("not allowed to read Networks in namespace %q; does it exist, and is manifests/rbac.yaml applied there? %w", namespace, err)
	case existing != nil && existing.UID != "": // the first request succeeded, so this error may be temporary
		klog.FromContext(ctx).Error(err, "Cannot list Networks now, starting anyway", "namespace", namespace)
		return existing.UID, nil
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return "", fmt.Errorf("list Networks in namespace %q on %s: %w", namespace, host, err)
	}
	return "", fmt.Errorf("the API server at %s does not answer; is it the right one, and is it up? %w", host, err)
}

// clientConfig returns the client configuration of a kubeconfig or, without one, of the ServiceAccount of the Pod that
// the program runs in.
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

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
	"k8s.io/client-go/tools/clientcmd"
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
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig; without one, the account of the Pod that this runs in")
	address := flag.String("address", "127.0.0.1:8080", "where to serve /metrics, /healthz and /readyz; port 0 for any")
	flag.StringVar(&options.Namespace, "namespace", "", "namespace of the Networks (required)")
	flag.IntVar(&options.Workers, "workers", 2, "how many Networks are looked at, at the same time")
	flag.DurationVar(&options.Backoff, "backoff", 100*time.Millisecond, "wait before a Network is tried again; it doubles each time")
	flag.DurationVar(&options.MaxBackoff, "max-backoff", time.Minute, "the longest such wait")
	flag.DurationVar(&options.Recheck, "recheck", 5*time.Minute, "how long after a Network was found well it is looked at again, give or take a fifth")
	flag.DurationVar(&options.Grace, "grace", 10*time.Second, "how long to finish what it is at, when it is told to stop")
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
	// At client-go's 5 requests a second, 1,000 Networks take seven minutes, with however many workers. Their number is
	// limit enough, and the API server tells a client that asks too much to wait.
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	var cloud *neutron.Cloud
	owner, err := look(ctx, kube, client, config.Host, options.Namespace)
	if err == nil {
		cloud, err = neutron.Connect(ctx)
	}
	if err == nil {
		if err = cloud.Look(ctx); neutron.IsTemporary(err) { // the Networks will say so, too
			klog.FromContext(ctx).Error(err, "The cloud does not answer, going on")
			err = nil
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before there was anything to do
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

// look asks once whether the API server answers, and has what we are to work on. An informer would not say: it
// tries for ever, and a namespace that does not exist has no Networks. It returns the namespace's UID.
func look(ctx context.Context, kube kubernetes.Interface, client versioned.Interface, host, namespace string) (types.UID, error) {
	there, err := kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no namespace %q on %s; make it, or name another with --namespace", namespace, host)
	}
	if err == nil {
		_, err = client.SamplecrdV1().Networks(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	}
	switch {
	case err == nil:
		return there.UID, nil
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%s does not know Networks; apply manifests/samplecrd.k8s.io_networks.yaml first", host)
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("may not see the Networks of namespace %q; is it there, and with the rights of manifests/rbac.yaml? %w", namespace, err)
	case there != nil && there.UID != "": // it has answered, so it is there
		klog.FromContext(ctx).Error(err, "Cannot list Networks now, going on", "namespace", namespace)
		return there.UID, nil
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return "", fmt.Errorf("look for Networks in namespace %q on %s: %w", namespace, host, err)
	}
	return "", fmt.Errorf("the API server at %s does not answer; is it the right one, and is it up? %w", host, err)
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

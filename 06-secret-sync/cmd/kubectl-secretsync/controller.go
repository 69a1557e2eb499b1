package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"example.com/controllers/secretsync"
)

// scopeFlags are the flags that say what is copied. The controller and the plugin have them.
type scopeFlags struct {
	sourceNamespace, namespaceSelector string
}

func (f *scopeFlags) addFlags(flags *pflag.FlagSet, sourceNamespace, sourceUsage string) {
	flags.StringVar(&f.sourceNamespace, "source-namespace", sourceNamespace, "`namespace` whose Secrets with the label "+secretsync.SharedLabel+"=true are copied; "+sourceUsage)
	flags.StringVar(&f.namespaceSelector, "namespace-selector", secretsync.DefaultNamespaces, "label `selector` of the namespaces that get copies")
}

// scope parses the flags. The errors name the flag.
func (f *scopeFlags) scope() (secretsync.Scope, error) {
	selector, err := secretsync.ParseNamespaces(f.namespaceSelector)
	if err != nil {
		return secretsync.Scope{}, fmt.Errorf("--namespace-selector: %w", err)
	}
	return secretsync.Scope{SourceNamespace: f.sourceNamespace, Namespaces: selector}, nil
}

// controllerFlags are the flags of the controller.
type controllerFlags struct {
	server
	scopeFlags
	options        secretsync.Options
	leaseNamespace string
	leaseDuration  time.Duration
	fence          fence
}

// controllerCommand returns the command that runs the controller, and parses its flags into f.
func controllerCommand(f *controllerFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller, which makes the copies and keeps them up to date",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	f.server.addFlags(cmd)
	o, flags := &f.options, cmd.Flags()
	f.scopeFlags.addFlags(flags, os.Getenv("SOURCE_NAMESPACE"), "default: SOURCE_NAMESPACE")
	flags.IntVar(&o.Workers, "workers", 32, "`number` of copies to handle concurrently")
	flags.Float32Var(&o.QPS, "qps", 500, "how many writes per second to send at most; 0 for no limit")
	flags.IntVar(&o.Burst, "burst", 1000, "`number` of writes that may exceed --qps after a pause")
	flags.DurationVar(&o.Backoff, "backoff", 100*time.Millisecond, "wait before the first retry of a copy; doubles with each further failure")
	flags.DurationVar(&o.MaxBackoff, "max-backoff", time.Minute, "upper limit of that wait")
	flags.DurationVar(&o.Grace, "grace", 10*time.Second, "how long requests may continue after SIGTERM")
	flags.StringVar(&f.leaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the Lease; default: POD_NAMESPACE, or else the source namespace")
	flags.DurationVar(&f.leaseDuration, "lease-duration", 15*time.Second, "how long the Lease of a controller that is gone keeps the next one waiting; 0 to run without a Lease")
	return cmd
}

// parse completes the options.
func (f *controllerFlags) parse() (err error) {
	if f.options.Scope, err = f.scope(); err != nil {
		return err
	}
	if f.leaseDuration < 0 || f.leaseDuration%time.Second != 0 { // a Lease has whole seconds
		return fmt.Errorf("--lease-duration is %s; it must be a whole number of seconds, or 0 to run without a Lease", f.leaseDuration)
	}
	if f.leaseNamespace == "" {
		f.leaseNamespace = f.sourceNamespace
	}
	return f.options.Validate()
}

func (f *controllerFlags) run(ctx context.Context) error {
	if err := f.parse(); err != nil {
		return err
	}
	config, err := f.clientConfig()
	if err != nil {
		return err
	}
	client, metadataClient, err := clients(config, &f.fence)
	if err != nil {
		return err
	}
	if err := f.check(ctx, client, config.Host); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before there was anything to do
		}
		return err
	}
	controller, err := secretsync.New(ctx, client, metadataClient, f.options)
	if err != nil {
		return err
	}
	return f.serve(ctx, controller.Readyz, []prometheus.Collector{controller.Metrics()}, func(ctx context.Context) error {
		if f.leaseDuration == 0 {
			return controller.Run(ctx)
		}
		return f.lead(ctx, client, controller)
	})
}

// clients returns the clients for a cluster. They have no rate limit and send no write again: the controller has its own limit
// and its own backoff. They write only while the fence lets them. Secrets are encoded in protobuf, which is cheaper than JSON for
// both sides.
func clients(config *rest.Config, f *fence) (kubernetes.Interface, metadata.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(f.wrap)
	config.Wrap(writeOnce)
	// By default, client-go logs the warnings that come with an answer. They are texts of somebody's policies and webhooks, which
	// may quote the Secret.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	return client, metadataClient, err
}

// startTimeout is how long the API server may take to answer the first request.
const startTimeout = 30 * time.Second

// check returns an error if the API server does not answer. Informers would not report it: they retry forever. A source
// namespace that does not exist is none, because its copies must still be deleted; but no Lease can be created in it, so the
// controller would never lead.
func (f *controllerFlags) check(ctx context.Context, client kubernetes.Interface, host string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err := client.CoreV1().Namespaces().Get(ctx, f.sourceNamespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && f.leaseDuration != 0 && f.leaseNamespace == f.sourceNamespace:
		return fmt.Errorf("the source namespace %q does not exist, so it cannot have the Lease; if the name is right, and its copies are to be deleted, "+
			"name a namespace for the Lease with --lease-namespace, or run a single controller with --lease-duration 0", f.sourceNamespace)
	case err == nil, apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return f.checkLease(ctx, client)
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return fmt.Errorf("get namespace %q from %s: %w", f.sourceNamespace, host, err)
	}
	return fmt.Errorf("the API server at %s does not answer; is the address right, and is it running? %w", host, err)
}

// checkLease returns an error if the namespace of the Lease does not exist.
func (f *controllerFlags) checkLease(ctx context.Context, client kubernetes.Interface) error {
	if f.leaseDuration == 0 || f.leaseNamespace == f.sourceNamespace {
		return nil
	}
	_, err := client.CoreV1().Namespaces().Get(ctx, f.leaseNamespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the namespace %q of the Lease does not exist; name another one with --lease-namespace", f.leaseNamespace)
	}
	return nil // another error may be over when the elector asks for the Lease
}

// lead runs the controller while it holds the Lease. It returns when ctx is cancelled, or with an error when the Lease is
// lost: a controller cannot start again, so its process does.
func (f *controllerFlags) lead(ctx context.Context, client kubernetes.Interface, controller *secretsync.Controller) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	// Controllers with different source namespaces do not wait for each other.
	name := "secretsync-" + f.sourceNamespace
	renewDeadline := f.leaseDuration * 2 / 3
	f.fence.hold(time.Time{})
	lock := &lease{fence: &f.fence, valid: renewDeadline, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: f.leaseNamespace, Name: name},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}}
	// At a shutdown, the Lease is renewed until the controller has ended, so that the next one does not overlap with it.
	leaseCtx, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	var runErr error
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: f.leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: f.leaseDuration / 6,
		// With ReleaseOnCancel, an elector that could not renew the Lease would release it before it stops the controller.
		ReleaseOnCancel: false,
		Name:            name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer close(ended)
				defer stopRenewing()
				work, cancel := context.WithCancel(leading)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				runErr = controller.Run(work)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				klog.FromContext(ctx).Info("Leader elected", "identity", identity)
			},
		},
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		if !elector.IsLeader() {
			stopRenewing()
		}
	})()
	elector.Run(leaseCtx)
	if !lock.acquired {
		return nil // ctx was cancelled first
	}
	<-ended
	releaseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewDeadline)
	defer cancel()
	if err := lock.release(releaseCtx); err != nil {
		klog.FromContext(ctx).Error(err, "Could not release the Lease, so the next controller waits until it expires", "lease", lock.Describe())
	}
	if ctx.Err() == nil {
		return errors.Join(runErr, errors.New("lost the Lease to another controller, or could not renew it"))
	}
	return runErr
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"example.com/controllers/reboot"
	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/policy"
	"example.com/controllers/reboot/protocol"
)

// controllerFlags are the flags of the controller that need parsing.
type controllerFlags struct {
	server
	options                      reboot.Options
	maxUnavailable, maxPerDomain string
	nodeSelector, agentPods      string
	blockingPods                 []string
	days                         []string
	start, end, zone             string
	leaseDuration                time.Duration
	values                       map[string]string // of the flags that the ledger publishes
}

func controllerCommand(f *controllerFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller, which decides who may reboot and drains Nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.options.AgentNamespace == "" {
				f.options.AgentNamespace = f.options.Namespace
			}
			f.values = publishedValues(cmd.Flags())
			return f.run(cmd.Context())
		},
	}
	f.addFlags(cmd)
	f.addPolicyFlags(cmd)
	o, flags := &f.options, cmd.Flags()
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the ledger and of the Lease; default: POD_NAMESPACE")
	flags.StringVar(&o.Ledger, "ledger", defaultLedger, "`name` of the ConfigMap that records the slots, and in which reboots are paused; controllers for different Nodes in one namespace need different ledgers")
	flags.StringVar(&o.OwnNode, "own-node", os.Getenv("NODE_NAME"), "`name` of the Node that the controller runs on, which goes last; default: NODE_NAME")
	flags.StringVar(&o.OwnPod, "own-pod", ownPod(), "`namespace/name` of the Pod that the controller runs in, which it does not evict; default: POD_NAMESPACE/POD_NAME")
	flags.StringVar(&f.agentPods, "agent-pods", "", "label `selector` of the agents' Pods; a Node on which none of them runs is not admitted; default: this is not checked")
	flags.StringVar(&o.AgentNamespace, "agent-namespace", "", "`namespace` of the agents' Pods; default: --namespace")
	flags.DurationVar(&o.DrainTimeout, "drain-timeout", 30*time.Minute, "how long a drain may take before it is given up")
	flags.DurationVar(&o.AgentTimeout, "agent-timeout", 5*time.Minute, "how long the agent may take to act on a drained Node before the attempt is given up")
	flags.DurationVar(&o.RebootTimeout, "reboot-timeout", 10*time.Minute, "how long a reboot may take before a Warning; its slot stays taken")
	flags.DurationVar(&o.RetryInterval, "retry-interval", 5*time.Minute, "how long a Node waits after an attempt was given up; doubles with each failure")
	flags.DurationVar(&o.MaxRetryInterval, "max-retry-interval", 2*time.Hour, "upper limit of that wait")
	flags.BoolVar(&o.DeleteUnmanagedPods, "delete-unmanaged-pods", false, "also evict Pods that no controller owns, and that nobody will create again")
	flags.IntVar(&o.Workers, "workers", 10, "`number` of Nodes to handle concurrently")
	flags.DurationVar(&o.Backoff, "backoff", 100*time.Millisecond, "wait before the first retry of a failed request; doubles with each further failure")
	flags.DurationVar(&o.MaxBackoff, "max-backoff", time.Minute, "upper limit of that wait")
	flags.DurationVar(&o.Grace, "grace", 10*time.Second, "how long requests may continue after SIGTERM")
	flags.DurationVar(&f.leaseDuration, "lease-duration", 15*time.Second, "how long the Lease of a controller that is gone keeps the next one waiting; 0 to run without a Lease")
	return cmd
}

// defaultLedger is the name of the ledger if there is only one.
const defaultLedger = "reboot-ledger"

// ownPod returns the Pod that the environment names.
func ownPod() string {
	namespace, name := os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME")
	if namespace == "" || name == "" {
		return ""
	}
	return namespace + "/" + name
}

// addPolicyFlags adds the flags that say who may reboot. "kubectl reboot why" has them, too.
func (f *controllerFlags) addPolicyFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.maxUnavailable, "max-unavailable", "1", "how many selected Nodes may be unavailable at the same time: a `number`, or a percentage, rounded up")
	flags.StringVar(&f.options.TopologyKey, "topology-key", "", "`label`, such as topology.kubernetes.io/zone, for each of whose values, and for the Nodes without it, --max-unavailable-per-domain holds")
	flags.StringVar(&f.maxPerDomain, "max-unavailable-per-domain", "1", "how many selected Nodes with the same value of --topology-key may be unavailable: a `number`, or a percentage, rounded up")
	flags.StringVar(&f.nodeSelector, "node-selector", "", "label `selector` of the Nodes that are counted and may be rebooted; default: all")
	flags.StringArrayVar(&f.blockingPods, "blocking-pods", nil, "label `selector` of Pods, in all namespaces, whose Nodes are not rebooted while they run; may be repeated, and then a Pod that matches one of them blocks; default: none")
	flags.DurationVar(&f.options.PauseAfterReboot, "pause-after-reboot", 0, "how long a Node keeps its slot after its reboot, so that the next one has to wait")
	flags.StringSliceVar(&f.days, "reboot-days", nil, "`days` of the week on which the window begins, such as mon,tue; default: all")
	flags.StringVar(&f.start, "start-time", "", "`time` of day at which the window begins, such as 22:00; default: no window")
	flags.StringVar(&f.end, "end-time", "", "`time` of day at which the window ends; no Node is admitted after it")
	flags.StringVar(&f.zone, "time-zone", "UTC", "time `zone` of the window, such as Europe/Berlin")
}

// policy parses the policy's flags. The errors name the flag.
func (f *controllerFlags) policy() (p policy.Policy, err error) {
	p = f.options.Policy
	if p.MaxUnavailable, err = policy.ParseMaxUnavailable(f.maxUnavailable); err != nil {
		return p, fmt.Errorf("--max-unavailable: %w", err)
	}
	if p.MaxPerDomain, err = policy.ParseMaxUnavailable(f.maxPerDomain); err != nil {
		return p, fmt.Errorf("--max-unavailable-per-domain: %w", err)
	}
	if p.Selector, err = labels.Parse(f.nodeSelector); err != nil {
		return p, fmt.Errorf("--node-selector: %w", err)
	}
	switch {
	case f.start != "" && f.end != "":
		p.Window, err = policy.ParseWindow(f.days, f.start, f.end, f.zone)
	case f.start != "" || f.end != "":
		err = errors.New("--start-time and --end-time are needed both")
	case len(f.days) > 0:
		p.Window, err = policy.ParseWindow(f.days, "00:00", "24:00", f.zone)
	}
	return p, err
}

// parse completes the options.
func (f *controllerFlags) parse() error {
	if err := f.parsePolicy(); err != nil {
		return err
	}
	if f.leaseDuration < 0 || f.leaseDuration%time.Second != 0 { // a Lease has whole seconds
		return fmt.Errorf("--lease-duration is %s; it must be a whole number of seconds, or 0 to run without a Lease", f.leaseDuration)
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
	client, err := newClient(config)
	if err != nil {
		return err
	}
	if err := checkNamespace(ctx, client, config.Host, f.options.Namespace); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before there was anything to do
		}
		return err
	}
	controller, err := reboot.New(ctx, client, f.options)
	if err != nil {
		return err
	}
	work := func(ctx context.Context) error { return f.publishAndRun(ctx, client, controller) }
	return f.serve(ctx, controller.Ready, []prometheus.Collector{controller.Metrics()}, func(ctx context.Context) error {
		if f.leaseDuration == 0 {
			return work(ctx)
		}
		return f.lead(ctx, client, work)
	})
}

// newClient returns the controller's client. It has no rate limit: the number of workers limits the load, and the API server's
// priority and fairness protects the API server. And it sends an eviction once: the drain has its own backoff.
func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(drain.EvictOnce)
	return kubernetes.NewForConfig(config)
}

// publishAndRun writes the limits of this controller where "kubectl reboot" finds them, and runs it. That is one request, and
// a write only if they have changed. The controller does not need them there.
func (f *controllerFlags) publishAndRun(ctx context.Context, client kubernetes.Interface, controller *reboot.Controller) error {
	if err := protocol.PublishFlags(ctx, client, f.options.Namespace, f.options.Ledger, f.values); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot publish the flags, so the plugin does not know the limits")
	}
	return controller.Run(ctx)
}

// lead does the controller's work while it holds the Lease. It returns when ctx is cancelled, or with an error when the Lease
// is lost: a controller cannot start again, so its process does. The Lease is kept until the work has ended, so that the next
// controller does not overlap with it.
func (f *controllerFlags) lead(ctx context.Context, client kubernetes.Interface, work func(context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: f.options.Namespace, Name: leaseName(f.options.Ledger)},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}
	// The elector would try again for ever.
	if _, _, err := lock.Get(ctx); apierrors.IsForbidden(err) {
		return fmt.Errorf("not allowed to get Lease %s: the Role must name it, as those in manifests/rbac.yaml and manifests/pools do for their ledgers: %w", lock.Describe(), err)
	}
	leaseCtx, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	renewDeadline := f.leaseDuration * 2 / 3
	var runErr error
	var claimed atomic.Bool // by the work, or by the end of the election, so that the work does not start after it
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: f.leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: f.leaseDuration / 6,
		// An elector that cannot renew the Lease would release it before it tells the controller to stop.
		ReleaseOnCancel: false,
		Name:            lock.LeaseMeta.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				if claimed.Swap(true) {
					return
				}
				defer close(ended)
				defer stopRenewing()
				leading, cancel := context.WithCancel(leading)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				runErr = work(leading)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				klog.FromContext(ctx).Info("Leader elected", "identity", identity)
				if identity != lock.Identity() {
					f.compareFlags(ctx, client)
				}
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
	if claimed.Swap(true) {
		<-ended
	}
	releaseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewDeadline)
	defer cancel()
	if err := release(releaseCtx, lock); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot release the Lease, so the next controller waits until it expires")
	}
	if ctx.Err() == nil {
		return errors.Join(runErr, errors.New("lost the Lease to another controller, or could not renew it"))
	}
	return runErr
}

// startTimeout is how long the API server may take to answer the first request.
const startTimeout = 30 * time.Second

// checkNamespace returns an error if the API server does not answer or the namespace does not exist. Informers would report
// neither: they retry forever.
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

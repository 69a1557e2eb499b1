package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"

	"example.com/controllers/harness/controlplane/gc"
	"example.com/controllers/harness/controlplane/nodes"
	"example.com/controllers/harness/controlplane/port"
	"example.com/controllers/harness/machine"
)

// settings are the flags of "controlplane serve".
type settings struct {
	dir            string   // the data directory
	nodes          int      // how many machines a new cluster starts with
	ephemeral      bool     // remove dir on exit, and run etcd without fsync
	exitWithStdin  bool     // stop when standard input is closed
	apiServerFlags []string // additional kube-apiserver flags

	onReady func() // called once, when the cluster is ready; may be nil
}

// ready is the line of JSON, and the only one, that serve prints to standard output when the cluster is ready.
type ready struct {
	Kubeconfig string `json:"kubeconfig"` // path of the admin kubeconfig
	Server     string `json:"server"`     // URL of the API server
	Version    string `json:"version"`    // Kubernetes version, such as "v1.37.1"
	Nodes      int    `json:"nodes"`      // how many Nodes are Ready
}

func serveCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "serve --dir DIR",
		Short: "Run a control plane until it is interrupted",
		Long: `Run a control plane until it is interrupted.

It listens on a port of 127.0.0.1 and writes to DIR only: etcd's data, certificates,
and DIR/admin.kubeconfig. When the cluster is ready, it prints a line of JSON to
standard output. The components log to standard error. Run it on the same DIR again
to continue with the same cluster.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return serve(s, os.Stdout) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.dir, "dir", "", "data `directory`; created if it does not exist (required)")
	flags.IntVar(&s.nodes, "nodes", 3, "how `many` simulated nodes a new cluster starts with")
	flags.BoolVar(&s.ephemeral, "ephemeral", false, "remove the data directory on exit, and do not wait for writes to reach the disk")
	flags.BoolVar(&s.exitWithStdin, "exit-with-stdin", false, "stop when standard input is closed, so as not to outlive the process at its other end")
	flags.StringArrayVar(&s.apiServerFlags, "apiserver-flag", nil, "an additional kube-apiserver `flag`, such as --audit-log-path=FILE; may be repeated")
	if err := cmd.MarkFlagRequired("dir"); err != nil {
		panic(err)
	}
	return cmd
}

func serve(s settings, out io.Writer) error {
	if s.nodes < 0 {
		return fmt.Errorf("--nodes is %d; it must be 0 or more", s.nodes)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if s.exitWithStdin {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}

	dir, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	if locked, err := lock.TryLock(); err != nil {
		return fmt.Errorf("lock data directory %s: %w", dir, err)
	} else if !locked {
		return fmt.Errorf("data directory %s is in use by another control plane; stop it or name another directory", dir)
	}
	defer lock.Close() // which also keeps the file reachable: garbage collection would close it and release the lock
	if s.ephemeral {
		defer removeAll(dir)
	}
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	// The paths of etcd's sockets are relative to it.
	if err := os.Chdir(dir); err != nil {
		return err
	}
	s.onReady = gc.Tune(ctx)
	logs.InitLogs()
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged

	err = run(ctx, s, dir, out)
	if ctx.Err() != nil {
		// We were asked to stop, so a component that stopped is no failure. There is no need to wait for the
		// others: etcd can be killed at any moment.
		return nil
	}
	if err != nil && s.ephemeral {
		// The other components still run. When its directory is removed, etcd ends the process, so print the error first.
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		removeAll(dir)
		os.Exit(1)
	}
	return err
}

// run starts the components, each as soon as what it depends on is up, and prints to out when the cluster is
// ready. It returns when ctx is cancelled or a component fails.
func run(ctx context.Context, s settings, dir string, out io.Writer) error {
	files, err := ensurePKI(dir)
	if err != nil {
		return err
	}
	listener, err := port.Listen(filepath.Join(dir, "port"))
	if err != nil {
		return err
	}
	server := "https://" + listener.Addr().String()
	kubeconfig := func(user string) string { return filepath.Join(dir, user+".kubeconfig") }
	const admin, controllerManager, scheduler, kubelets = "admin", "kube-controller-manager", "kube-scheduler", "kubelets"
	for _, user := range []string{admin, controllerManager, scheduler, kubelets} {
		if err := files.writeKubeconfig(kubeconfig(user), server, "workshop:"+user); err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", user, err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig(admin))
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}

	// A component that returns before ctx is cancelled has failed, even if it returns no error.
	work, ctx := errgroup.WithContext(ctx)
	component := func(name string, run func() error) {
		work.Go(func() error {
			if err := run(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return fmt.Errorf("%s exited unexpectedly", name)
		})
	}
	etcdReady := make(chan struct{})
	work.Go(func() error {
		if _, err := startEtcd(ctx, dir, !s.ephemeral); err != nil {
			return err
		}
		close(etcdReady)
		return nil
	})
	bootstrapped := make(chan struct{})
	component("kube-apiserver", func() error {
		return runAPIServer(ctx, listener, files, s.apiServerFlags, etcdReady, bootstrapped)
	})
	machinesAdded := make(chan struct{})
	work.Go(func() error {
		if err := addMachines(ctx, client, s.nodes); err != nil {
			return fmt.Errorf("add nodes: %w", err)
		}
		close(machinesAdded)
		return nil
	})
	work.Go(func() error {
		select { // a check of its health would fail until then, and take time of its start
		case <-bootstrapped:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := poll(ctx, func() error { return checkHealth(ctx, client, "/healthz") }); err != nil {
			return err
		}
		component("kube-controller-manager", func() error {
			return runControllerManager(ctx, kubeconfig(controllerManager), files)
		})
		component("kube-scheduler", func() error { return runScheduler(ctx, kubeconfig(scheduler)) })
		if err := poll(ctx, func() error {
			_, err := client.CoreV1().Namespaces().Get(ctx, corev1.NamespaceNodeLease, metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}
		component("kubelets", func() error { return nodes.Run(ctx, kubeconfig(kubelets)) })

		select {
		case <-machinesAdded:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := poll(ctx, func() error { return checkHealth(ctx, client, "/readyz") }); err != nil {
			return err
		}
		count, err := waitForNodes(ctx, client)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(ready{kubeconfig(admin), server, version.Get().GitVersion, count}); err != nil {
			return err
		}
		if s.onReady != nil {
			s.onReady()
		}
		return nil
	})

	// Not work.Wait: a graceful shutdown of the API server takes up to a minute.
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// addMachines adds count machines to a cluster without Nodes, as soon as the API server serves requests. If the
// cluster has Nodes, its user may have added or removed some, so it adds none.
func addMachines(ctx context.Context, client kubernetes.Interface, count int) error {
	var existing *corev1.NodeList
	if err := poll(ctx, func() (err error) {
		existing, err = client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}); err != nil {
		return err
	}
	if len(existing.Items) > 0 {
		return nil
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(8)
	for i := range count {
		// Each creation is retried separately. A retry of addMachines would find Nodes and skip the rest.
		work.Go(func() error {
			return poll(ctx, func() error {
				node := machine.Node(machine.Name(i), version.Get().GitVersion)
				_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return nil
				}
				return err
			})
		})
	}
	return work.Wait()
}

// waitForNodes waits until every Node that should be Ready is, and returns how many are. The more there are, the less often it lists
// them: to decode thousands of Nodes every few milliseconds would keep them from becoming Ready.
func waitForNodes(ctx context.Context, client kubernetes.Interface) (int, error) {
	const perNode = 200 * time.Microsecond
	for {
		all, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		interval := pollInterval
		if err == nil {
			interval = max(interval, time.Duration(len(all.Items))*perNode)
			var count int
			if count, err = countReady(all.Items); err == nil {
				return count, nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%w (last error: %w)", context.Cause(ctx), err)
		case <-time.After(interval):
		}
	}
}

// countReady returns how many Nodes are Ready, or an error that names one that should be and is not.
func countReady(nodes []corev1.Node) (count int, err error) {
	for _, node := range nodes {
		if isReady(&node) {
			count++
		} else if shouldBeReady(&node) {
			return 0, fmt.Errorf("node %s is not ready", node.Name)
		}
	}
	return count, nil
}

// shouldBeReady reports whether the Node is a machine that is powered on, not set to report Ready=False and not
// rebooting.
func shouldBeReady(node *corev1.Node) bool {
	return machine.IsOn(node) && node.Annotations[machine.ReadyAnnotation] != "false" && node.Annotations[machine.RebootingAnnotation] == ""
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func checkHealth(ctx context.Context, client kubernetes.Interface, path string) error {
	return client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error()
}

// pollInterval is how often poll calls a function.
const pollInterval = 10 * time.Millisecond

// poll calls try every pollInterval until it succeeds or ctx is cancelled. It is for what takes a second or two.
func poll(ctx context.Context, try func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w (last error: %w)", err, last)
	}
	return nil
}

// removeAll removes dir. etcd may still be writing to it, so a removal that fails is retried for a while.
func removeAll(dir string) {
	const timeout, interval = 10 * time.Second, 20 * time.Millisecond
	for start := time.Now(); os.RemoveAll(dir) != nil && time.Since(start) < timeout; time.Sleep(interval) {
	}
}

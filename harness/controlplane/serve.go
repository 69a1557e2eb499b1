package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
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

	"example.com/controllers/harness/controlplane/nodes"
	"example.com/controllers/harness/machine"
)

// settings are the flags of "controlplane serve".
type settings struct {
	dir            string   // the data directory
	nodes          int      // how many machines a new data directory starts with
	ephemeral      bool     // remove dir at the end, and do not wait for the disk
	exitWithStdin  bool     // end when standard input does
	apiServerFlags []string // further flags of kube-apiserver

	started func() // called when the cluster is ready, if not nil
}

// ready is the one line that serve prints to standard output, when the cluster can be used.
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

It listens on a free port of 127.0.0.1 and keeps everything it writes in DIR: the
database, certificates, and DIR/admin.kubeconfig. When the cluster
can be used, a line of JSON on standard output says so. Its components log to
standard error. DIR can be served again later; a cluster in it goes on as it was.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return serve(s, os.Stdout) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.dir, "dir", "", "data directory; made if it is not there")
	flags.IntVar(&s.nodes, "nodes", 3, "number of simulated nodes that a new cluster starts with")
	flags.BoolVar(&s.ephemeral, "ephemeral", false, "remove the data directory at the end")
	flags.BoolVar(&s.exitWithStdin, "exit-with-stdin", false, "end when standard input is closed, so as not to outlive the process at its other end")
	flags.StringArrayVar(&s.apiServerFlags, "apiserver-flag", nil, "a further flag of kube-apiserver, such as --audit-log-path=FILE; may be repeated")
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
		return fmt.Errorf("data directory %s is served by another control plane; stop it or name another directory", dir)
	}
	defer lock.Close() // and until then the lock is referred to: it would go with its garbage-collected file
	if s.ephemeral {
		defer removeAll(dir)
	}
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	// Sockets are named relative to it.
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		s.started = deferGarbageCollection()
	}
	logs.InitLogs()
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged

	err = run(ctx, s, dir, out)
	if ctx.Err() != nil {
		// Asked to end: whatever the components say of it is no news. They are not waited for; the
		// database is made to be killed at any moment.
		return nil
	}
	return err
}

// run starts the components, each as soon as what it needs is there, says when the cluster is ready,
// and returns when ctx ends or a component fails.
func run(ctx context.Context, s settings, dir string, out io.Writer) error {
	files, err := ensurePKI(dir)
	if err != nil {
		return err
	}
	listener, err := listen(filepath.Join(dir, "port"))
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

	// A component that returns while nobody asked it to has failed, whether it says so or not.
	work, ctx := errgroup.WithContext(ctx)
	component := func(name string, run func() error) {
		work.Go(func() error {
			if err := run(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return fmt.Errorf("%s ended by itself", name)
		})
	}
	database := make(chan struct{})
	work.Go(func() error {
		if _, err := startEtcd(ctx, dir, !s.ephemeral); err != nil {
			return err
		}
		close(database)
		return nil
	})
	component("kube-apiserver", func() error {
		return runAPIServer(ctx, listener, files, s.apiServerFlags, database)
	})
	added := make(chan struct{})
	work.Go(func() error {
		if err := addMachines(ctx, client, s.nodes); err != nil {
			return fmt.Errorf("add nodes: %w", err)
		}
		close(added)
		return nil
	})
	work.Go(func() error {
		if err := poll(ctx, func() error { return health(ctx, client, "/healthz") }); err != nil {
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
		component("kubelets", func() error { return nodes.Play(ctx, kubeconfig(kubelets)) })

		select {
		case <-added:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := poll(ctx, func() error { return health(ctx, client, "/readyz") }); err != nil {
			return err
		}
		count, err := nodesReady(ctx, client)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(ready{kubeconfig(admin), server, version.Get().GitVersion, count}); err != nil {
			return err
		}
		if s.started != nil {
			s.started()
		}
		return nil
	})

	// Not work.Wait: the API server takes up to a minute to end by itself.
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// deferGarbageCollection lets the heap of a start grow, because most of what a start allocates stays,
// and collecting garbage meanwhile is a fifth of the work. The function that it returns ends that. The
// limit is for the start of a cluster that has much in its database.
func deferGarbageCollection() (end func()) {
	const startLimit = 512 << 20
	usual := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(usual, startLimit))
	debug.SetGCPercent(-1)
	return func() {
		// A laptop has more time than memory, so the garbage is kept smaller than usual, and what the
		// start left goes back to the system at once.
		debug.SetGCPercent(50)
		debug.SetMemoryLimit(usual)
		debug.FreeOSMemory()
	}
}

// listen takes the port that the cluster had before, if it is free, so that a kubeconfig handed out
// earlier stays true; else any free one. The port is kept in file.
func listen(file string) (net.Listener, error) {
	port := "0"
	if text, err := os.ReadFile(file); err == nil {
		port = strings.TrimSpace(string(text))
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	port = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	return listener, os.WriteFile(file, []byte(port), 0o600)
}

// addMachines brings a cluster that has no Nodes to count machines, as soon as the API server answers.
// A cluster that has some is left as its owner made it.
func addMachines(ctx context.Context, client kubernetes.Interface, count int) error {
	var present *corev1.NodeList
	if err := poll(ctx, func() (err error) {
		present, err = client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}); err != nil {
		return err
	}
	if len(present.Items) > 0 {
		return nil
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(8)
	for i := range count {
		// One by one, not all again: the second time there would be Nodes, and the rest be left out.
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

// nodesReady waits until every machine that should be Ready is, and returns their number.
func nodesReady(ctx context.Context, client kubernetes.Interface) (int, error) {
	var count int
	err := poll(ctx, func() error {
		all, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		count = 0
		for _, node := range all.Items {
			if isReady(&node) {
				count++
			} else if wanted(&node) {
				return fmt.Errorf("node %s is not ready", node.Name)
			}
		}
		return nil
	})
	return count, err
}

func wanted(node *corev1.Node) bool {
	return node.Labels[machine.PowerLabel] == "on" && node.Annotations[machine.ReadyAnnotation] != "false"
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func health(ctx context.Context, client kubernetes.Interface, path string) error {
	return client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error()
}

// poll tries until it works or ctx ends. It is for what comes up within a second or two.
func poll(ctx context.Context, try func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w (last: %w)", err, last)
	}
	return nil
}

// removeAll removes dir while the database in it may still be writing. On a busy machine, that may take it a while.
func removeAll(dir string) {
	const long, pause = 10 * time.Second, 20 * time.Millisecond
	for begin := time.Now(); os.RemoveAll(dir) != nil && time.Since(begin) < long; time.Sleep(pause) {
	}
}

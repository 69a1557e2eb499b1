package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"

	"example.com/controllers/harness/chart"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/proc"
)

// size is how many Nodes there are, and how many Pods on all of them together.
type size struct{ nodes, pods int }

// sizes is a flag: sizes, separated by commas, or none.
type sizes []size

const maxNodes, maxPods = 10000, 100000 // more have not been tried

// String implements flag.Value.
func (s *sizes) String() string {
	var words []string
	for _, size := range *s {
		words = append(words, fmt.Sprintf("%dx%d", size.nodes, size.pods))
	}
	return strings.Join(words, ",")
}

// Set implements flag.Value.
func (s *sizes) Set(text string) error {
	*s = nil
	if text == "" {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		left, right, _ := strings.Cut(strings.TrimSpace(word), "x")
		nodes, err := strconv.Atoi(left)
		pods, err2 := strconv.Atoi(right)
		if err != nil || err2 != nil || nodes < 1 || nodes > maxNodes || pods < 1 || pods > maxPods {
			return fmt.Errorf("it must be numbers of Nodes, up to %d, and of Pods, up to %d, such as 100x400,1000x4000", maxNodes, maxPods)
		}
		*s = append(*s, size{nodes, pods})
	}
	return nil
}

// fleet holds the measurements of one run of simulated kubelets.
type fleet struct {
	ready     time.Duration // from when the first of the Nodes is created until all are Ready
	running   time.Duration // from when the first Pod is created until all are Running
	cpu       time.Duration // of the kubelets, until then
	serverCPU time.Duration // of the API server and etcd, until then
	usage                   // of the kubelets, when they have settled
}

// creators is how many Nodes or Pods are created at the same time.
const creators = 16

// kubeletsTimeout bounds a run.
const kubeletsTimeout = time.Hour

// measureKubelets starts envtest and a program that simulates kubelets of the Nodes with [machine.Selector], creates Nodes and then Pods
// on them, measures the program, and stops all.
func (p programs) measureKubelets(ctx context.Context, dir string, s size, idle time.Duration, name, path string, args ...string) (f fleet, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, kubeletsTimeout, fmt.Errorf("it took more than %s", kubeletsTimeout))
	defer cancel()
	err = p.runEnvtest(ctx, dir, func(ctx context.Context, e running) error {
		kubeconfig := filepath.Join(dir, "kubeconfig")
		if err := os.WriteFile(kubeconfig, e.environment.KubeConfig, 0o600); err != nil {
			return err
		}
		config := rest.CopyConfig(e.environment.Config)
		config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		if err := poll(ctx, "wait for the namespace of Leases", func() error {
			_, err := client.CoreV1().Namespaces().Get(ctx, corev1.NamespaceNodeLease, metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}

		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		log, err := os.Create(filepath.Join(dir, name+".log"))
		if err != nil {
			return err
		}
		defer log.Close()
		cmd := exec.CommandContext(ctx, path, append(args, "--kubeconfig", kubeconfig)...)
		cmd.Stdout, cmd.Stderr = log, log
		proc.Group(cmd)
		if _, err := cmd.StdinPipe(); err != nil { // our own ends with this process
			return err
		}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		exited := make(chan struct{})
		go func() {
			end(fmt.Errorf("%s exited: %w", name, exitError(cmd.Wait())))
			close(exited)
		}()
		err = f.measure(ctx, client, s, idle, e.processes, &process.Process{Pid: int32(cmd.Process.Pid)})
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
			err = cause // the error is only a consequence of this
		}
		end(nil)
		<-exited
		return withLogs(err, log)
	})
	return f, err
}

func (f *fleet) measure(ctx context.Context, client kubernetes.Interface, s size, idle time.Duration, servers []*process.Process, kubelets *process.Process) error {
	before, err := processorTime(servers)
	if err != nil {
		return err
	}
	// All resources have their versions from one counter.
	version := func(ctx context.Context) (string, error) {
		list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return "", err
		}
		return list.ResourceVersion, nil
	}
	createNode := func(ctx context.Context, i int) error {
		_, err := client.CoreV1().Nodes().Create(ctx, machine.Node(machine.Name(i), cluster.KubernetesVersion), metav1.CreateOptions{})
		return err
	}
	// The program has started when it has taken a Node.
	if _, err := reach(ctx, "the first Node is Ready", 1, version, client.CoreV1().Nodes().Watch, isReady, func(ctx context.Context, _ int) error {
		return createNode(ctx, s.nodes)
	}); err != nil {
		return err
	}
	f.ready, err = reach(ctx, "the Nodes are Ready", s.nodes, version, client.CoreV1().Nodes().Watch, isReady, createNode)
	if err != nil {
		return err
	}
	f.running, err = reach(ctx, "the Pods are Running", s.pods, version, client.CoreV1().Pods(namespace).Watch, isRunning, func(ctx context.Context, i int) error {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)},
			Spec:       corev1.PodSpec{NodeName: machine.Name(i % s.nodes), Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	after, err := processorTime(servers)
	if err != nil {
		return err
	}
	f.serverCPU = after - before
	b := boot{}
	err = b.measure(ctx, idle, kubelets)
	f.cpu, f.usage = b.cpu, b.usage
	return err
}

func isReady(object runtime.Object) bool {
	for _, c := range object.(*corev1.Node).Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func isRunning(object runtime.Object) bool {
	return object.(*corev1.Pod).Status.Phase == corev1.PodRunning
}

// reach creates so many objects, waits until a watch has shown as many of them in the state that is accepts, and returns how long that
// took. version returns the version that the cluster is at; objects that do not change any more are not counted.
func reach(ctx context.Context, what string, count int, version func(context.Context) (string, error), open cache.WatchFuncWithContext, is func(runtime.Object) bool, create func(ctx context.Context, i int) error) (time.Duration, error) {
	from, err := version(ctx)
	if err != nil {
		return 0, err
	}
	// With 5,000 Nodes, the API server ended a watch that was in use. This one is opened again.
	watched, err := watchtools.NewRetryWatcherWithContext(ctx, from, &cache.ListWatch{WatchFuncWithContext: open})
	if err != nil {
		return 0, err
	}
	defer watched.Stop()
	start := time.Now()
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error {
		done := map[string]bool{}
		failed := func(err error) error {
			return fmt.Errorf("wait until %s: %w (%d of %d are)", what, err, len(done), count)
		}
		for len(done) < count {
			select {
			case <-ctx.Done():
				return failed(context.Cause(ctx))
			case event, ok := <-watched.ResultChan():
				switch {
				case !ok && ctx.Err() != nil:
					return failed(context.Cause(ctx))
				case !ok:
					return failed(errors.New("the watch has ended"))
				case event.Type == watch.Error:
					return failed(apierrors.FromObject(event.Object))
				}
				if is(event.Object) {
					done[event.Object.(metav1.Object).GetName()] = true
				}
			}
		}
		return nil
	})
	work.Go(func() error {
		creating, ctx := errgroup.WithContext(ctx)
		creating.SetLimit(creators)
		for i := range count {
			if ctx.Err() != nil {
				break // one has failed
			}
			creating.Go(func() error { return create(ctx, i) })
		}
		return creating.Wait()
	})
	err = work.Wait()
	return time.Since(start), err
}

// benchKubelets measures our simulated kubelets and KWOK's controller alternately, and prints a table for each size. A first pair, which
// reads the programs from disk, does not count, and each round begins with the other side.
func benchKubelets(ctx context.Context, o options) (err error) {
	programs, err := build(ctx, true)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "workshop-bench-")
	if err != nil {
		return fmt.Errorf("create a directory for the kubelets: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// KWOK's own Stages, which kwokctl gives it.
	stages := filepath.Join(dir, "kwok.yaml")
	if err := os.WriteFile(stages, []byte(strings.Join([]string{nodefast.DefaultNodeInit, heartbeat.DefaultNodeHeartbeatWithLease,
		podfast.DefaultPodReady, podfast.DefaultPodComplete, podfast.DefaultPodDelete}, "\n---\n")), 0o600); err != nil {
		return err
	}
	lines := make([][2]chart.Line, len(fleetMeasures)) // of KWOK and of ours
	sides := []struct {
		name, path string
		args       []string
	}{
		{"kubelets", programs.controlPlane, []string{"kubelets"}},
		{"kwok", o.kwok, []string{"--config=" + stages, "--manage-nodes-with-label-selector=" + machine.Selector, "--node-lease-duration-seconds=40", "--cidr=10.244.0.0/16"}},
	}
	run := func(s size, idle time.Duration, label string, side int) (fleet, error) {
		label += ", " + sides[side].name
		empty := filepath.Join(dir, "run")
		if err := os.Mkdir(empty, 0o700); err != nil {
			return fleet{}, err
		}
		f, err := programs.measureKubelets(ctx, empty, s, idle, sides[side].name, sides[side].path, sides[side].args...)
		if err := errors.Join(err, os.RemoveAll(empty)); err != nil {
			return fleet{}, fmt.Errorf("%s: %w", label, err)
		}
		fmt.Fprintf(os.Stderr, "%s: Ready in %s, Running in %s, %s\n", label, seconds(f.ready.Seconds()), seconds(f.running.Seconds()), mebibytes(float64(f.resident)))
		return f, nil
	}
	for side := range sides {
		if _, err := run(size{1, 1}, 0, "warm-up", side); err != nil {
			return err
		}
	}
	for _, s := range o.kubelets {
		fleets := make([][]fleet, len(sides))
		for round := range o.rounds {
			for k := range sides {
				side := (round + k) % len(sides)
				f, err := run(s, o.idle, fmt.Sprintf("%d Nodes, %d Pods, round %d of %d", s.nodes, s.pods, round+1, o.rounds), side)
				if err != nil {
					return err
				}
				fleets[side] = append(fleets[side], f)
			}
		}
		fmt.Printf("\n%d Nodes and %d Pods, %d runs of each, alternating\n\n", s.nodes, s.pods, o.rounds)
		if err := table(os.Stdout, fleetMeasures, column[fleet]{"ours", fleets[0]}, column[fleet]{"KWOK", fleets[1]}); err != nil {
			return err
		}
		for i, m := range fleetMeasures {
			for k, side := range []int{1, 0} {
				y := summarize(each(fleets[side], m.of)).median
				lines[i][k].Points = append(lines[i][k].Points, chart.Point{X: float64(s.nodes), Y: y})
			}
		}
	}
	if o.picture == "" {
		return nil
	}
	c := chart.Chart{Title: "How long simulated kubelets take, by the number of Nodes", X: "Nodes", Unit: "s"}
	for i, m := range fleetMeasures {
		if m.panel != "" {
			lines[i][0].Name, lines[i][1].Name = "KWOK", "ours"
			c.Panels = append(c.Panels, chart.Panel{Title: m.panel, Lines: lines[i][:]})
		}
	}
	return os.WriteFile(o.picture, c.SVG(), 0o666)
}

// fleetMeasures are the rows of the table of kubelets.
var fleetMeasures = []measure[fleet]{
	{"until all Nodes are Ready", func(f fleet) float64 { return f.ready.Seconds() }, seconds, "all Nodes are Ready"},
	{"from then until all Pods are Running", func(f fleet) float64 { return f.running.Seconds() }, seconds, "then all Pods are Running"},
	{"processor time until then", func(f fleet) float64 { return f.cpu.Seconds() }, seconds, "processor time"},
	{"of the API server and etcd", func(f fleet) float64 { return f.serverCPU.Seconds() }, seconds, ""},
	{"resident memory", func(f fleet) float64 { return float64(f.resident) }, mebibytes, ""},
	{"anonymous memory", func(f fleet) float64 { return float64(f.anonymous) }, mebibytes, ""},
	{"processor time per idle minute", func(f fleet) float64 { return f.idle.Seconds() }, seconds, ""},
}

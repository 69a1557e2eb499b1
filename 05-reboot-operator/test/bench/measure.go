package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/proc"
	"example.com/controllers/reboot/protocol"
)

const (
	namespace   = "reboot-operator" // the manifests' own
	waitTimeout = 2 * time.Hour     // for each wait; only so that a hang ends
	quietPeriod = 5 * time.Second   // without requests but for the Lease, after which controller and agents count as at rest
	concurrency = 8                 // number of Nodes to create or annotate at the same time
	starting    = 50                // number of agents to start at the same time
)

// phase is a part of the measurement.
type phase struct {
	took               time.Duration
	controller, agents []history.Cost
	cpu                time.Duration // of the controller
	peak               uint64        // of the controller's resident memory, in bytes, from its start to the end of the phase
}

// result is what was measured.
type result struct {
	nodes, reboots int
	reboot, rest   phase
	slots          []time.Duration // how long each Node was unavailable, from its admission until it was Ready and schedulable
	mostAdmitted   int             // highest number of Nodes that were unavailable because of a reboot at the same time
}

// cpuPerReboot returns the controller's CPU time for each reboot, in milliseconds.
func (r result) cpuPerReboot() float64 { return 1000 * r.reboot.cpu.Seconds() / float64(r.reboots) }

// measure builds the program of the repository at root and measures it on a cluster of its own with that many Nodes, which it removes
// in any case.
func measure(ctx context.Context, o options, nodes int, root string, progress io.Writer) (r result, err error) {
	dir := filepath.Join(root, "05-reboot-operator")
	path, err := gobuild.Build(ctx, gobuild.Program{Name: "kubectl-reboot", Dir: dir, Package: "./cmd/kubectl-reboot", Sources: []string{"."}}, progress)
	if err != nil {
		return r, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Progress: progress})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx, logr.Discard()))
	defer cancel(nil)
	go func() {
		select {
		case <-c.Done():
			cancel(c.Err())
		case <-ctx.Done():
		}
	}()
	if o.reboots == 0 || o.reboots > nodes {
		o.reboots = nodes
	}
	b := &bench{options: o, size: nodes, ctx: ctx, fail: cancel, progress: progress, cluster: c, dir: dir, path: path, nodes: observer{nodes: map[string]observed{}}}
	if r, err = b.measure(); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the error is only a consequence of this
	}
	return r, err
}

// bench is a measurement.
type bench struct {
	options                  // of which reboots is how many Nodes reboot
	size     int             // how many Nodes there are
	ctx      context.Context // its cause is the error that ended the measurement
	fail     func(error)     // cancels ctx with a cause
	progress io.Writer
	cluster  *cluster.Cluster
	dir      string // the lesson's directory
	path     string // of kubectl-reboot

	client             kubernetes.Interface // of the administrator and the kubelets
	machines           []*simulated
	nodes              observer
	controller, agents recorder
}

func (b *bench) measure() (r result, err error) {
	scratch, err := os.MkdirTemp(b.cluster.Dir(), "bench-")
	if err != nil {
		return r, err
	}
	for _, args := range [][]string{
		{"create", "namespace", namespace},
		{"apply", "--filename", filepath.Join(b.dir, "manifests", "rbac.yaml"), "--filename", filepath.Join(b.dir, "manifests", "policy.yaml")},
	} {
		kubectl := exec.CommandContext(b.ctx, filepath.Join(b.cluster.Kubectl, "kubectl"), args...)
		kubectl.Env = append(os.Environ(), b.cluster.Env(scratch)...)
		proc.Group(kubectl)
		if out, err := kubectl.CombinedOutput(); err != nil {
			return r, fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	config, err := b.cluster.Config()
	if err != nil {
		return r, err
	}
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	if b.client, err = kubernetes.NewForConfig(config); err != nil {
		return r, err
	}
	playing, end := context.WithCancel(b.ctx)
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	defer end()
	play := func(do func(context.Context) error) {
		goroutines.Go(func() {
			if err := do(playing); err != nil && playing.Err() == nil {
				b.fail(err)
			}
		})
	}

	fmt.Fprintf(b.progress, "bench: creating %d Nodes\n", b.size)
	stopWatching, err := b.nodes.watch(playing, b.client)
	if err != nil {
		return r, err
	}
	defer stopWatching()
	defer end()
	if err := b.register(); err != nil {
		return r, fmt.Errorf("create the Nodes: %w", err)
	}
	play(func(ctx context.Context) error { return renewLeases(ctx, b.machines, &b.nodes) })
	if err := b.until("the node lifecycle controller has removed the taints of new Nodes", func() string {
		if n := b.nodes.counts(); n.available < b.size {
			return fmt.Sprintf("it has for %d Nodes", n.available)
		}
		return ""
	}); err != nil {
		return r, err
	}

	fmt.Fprintf(b.progress, "bench: starting %d agents\n", b.size)
	if err := b.startAgents(play); err != nil {
		return r, fmt.Errorf("start the agents: %w", err)
	}

	account, err := b.cluster.ServiceAccountConfig(b.ctx, namespace, "reboot-controller")
	if err != nil {
		return r, err
	}
	// The proxy stops after the controller; otherwise, the recording would end with requests that broke off.
	proxy, err := apiproxy.Start(context.WithoutCancel(b.ctx), apiproxy.Options{Upstream: account, Record: b.controller.Record})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	kubeconfig := filepath.Join(scratch, "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, proxy.Config(), namespace); err != nil {
		return r, err
	}
	ctx, stopped := context.WithCancel(b.ctx)
	defer stopped()
	running, err := start(filepath.Join(scratch, "log"), kubeconfig, func(err error) {
		if ctx.Err() == nil {
			b.fail(err)
		}
	}, b.path, "controller", "--kubeconfig="+kubeconfig, "--namespace="+namespace, "--address=127.0.0.1:0",
		fmt.Sprintf("--max-unavailable=%d", b.maxUnavailable), fmt.Sprintf("--workers=%d", b.workers))
	if err != nil {
		return r, err
	}
	defer func() {
		stopped()
		err = errors.Join(err, running.stop())
	}()
	if err := b.until("the controller's cache has synced", func() string {
		if !b.controller.synced.Load() {
			return "it has not received all Nodes"
		}
		return ""
	}); err != nil {
		return r, err
	}
	if err := b.awaitQuiet(); err != nil {
		return r, err
	}
	return r, b.phases(&r, running)
}

// phases reboots the Nodes, and waits at rest.
func (b *bench) phases(r *result, running *program) (err error) {
	fmt.Fprintf(b.progress, "bench: rebooting %d Nodes, at most %d at a time, with a boot time of %s\n", b.reboots, b.maxUnavailable, b.bootTime)
	r.nodes, r.reboots = b.size, b.reboots
	r.reboot, err = b.phase(running, b.awaitQuiet, func() error {
		if err := forAll(b.ctx, b.machines[:b.reboots], func(m *simulated) error {
			_, err := b.client.CoreV1().Nodes().Patch(b.ctx, m.name, types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"bench"}}}`, protocol.NeededAnnotation), metav1.PatchOptions{})
			return err
		}); err != nil {
			return fmt.Errorf("ask for the reboots: %w", err)
		}
		return b.until("the Nodes have rebooted", func() string {
			if n := b.nodes.counts(); n.rebooted < b.reboots {
				return fmt.Sprintf("%d have, %d hold a slot", n.rebooted, n.admitted)
			}
			return ""
		})
	})
	if err != nil {
		return err
	}
	r.slots, r.mostAdmitted = b.nodes.results()
	fmt.Fprintf(b.progress, "bench: measuring at rest for %s\n", b.rest)
	r.rest, err = b.phase(running, func() error { return nil }, func() error {
		select {
		case <-time.After(b.rest):
			return nil
		case <-b.ctx.Done():
			return context.Cause(b.ctx)
		}
	})
	return err
}

// phase measures do, and the requests from its start until settle has returned.
func (b *bench) phase(running *program, settle, do func() error) (p phase, err error) {
	before, err := running.usage()
	if err != nil {
		return p, err
	}
	from := time.Now()
	if err := do(); err != nil {
		return p, err
	}
	p.took = time.Since(from)
	after, err := running.usage()
	if err != nil {
		return p, err
	}
	p.cpu, p.peak = after.cpu-before.cpu, after.peak
	if err := settle(); err != nil {
		return p, err
	}
	to := time.Now()
	p.controller, p.agents = b.controller.History().Between(from, to).Cost(), b.agents.History().Between(from, to).Cost()
	return p, nil
}

// awaitQuiet waits until the controller and the agents have sent no request but for the Lease for a while.
func (b *bench) awaitQuiet() error {
	last, since := int64(-1), time.Now()
	return b.until("the controller and the agents are at rest", func() string {
		if now := b.controller.sent.Load() + b.agents.sent.Load(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < quietPeriod {
			return "they still send requests"
		}
		return ""
	})
}

// register makes the machines and their Nodes.
func (b *bench) register() error {
	for i := range b.size {
		m := &simulated{name: machine.Name(i), bootTime: b.bootTime, kubelet: b.client}
		m.boot()
		b.machines = append(b.machines, m)
	}
	return forAll(b.ctx, b.machines, func(m *simulated) error { return m.register(b.ctx, b.images) })
}

// startAgents starts the machines' agents, and returns when each of them watches its Node.
func (b *bench) startAgents(play func(func(context.Context) error)) error {
	var group errgroup.Group
	group.SetLimit(starting)
	for _, m := range b.machines {
		group.Go(func() error {
			node, err := b.client.CoreV1().Nodes().Get(b.ctx, m.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			config, err := b.cluster.NodeServiceAccountConfig(b.ctx, namespace, "reboot-agent", node)
			if err != nil {
				return err
			}
			watching := make(chan struct{})
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return &transport{next, &b.agents, sync.OnceFunc(func() { close(watching) })}
			})
			if m.agent, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
			play(m.run)
			select {
			case <-watching:
				return nil
			case <-b.ctx.Done():
				return context.Cause(b.ctx)
			}
		})
	}
	return group.Wait()
}

// forAll calls do with each machine, several at a time, until one returns an error.
func forAll(ctx context.Context, machines []*simulated, do func(*simulated) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, m := range machines {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(m) })
	}
	return group.Wait()
}

// until waits until check returns "". If that takes too long, the error has what check returned last.
func (b *bench) until(what string, check func() string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	printed := begin
	for {
		last := check()
		if last == "" {
			return nil
		}
		if time.Since(begin) > waitTimeout {
			return fmt.Errorf("wait until %s: %s, after %s", what, last, waitTimeout)
		}
		if time.Since(printed) > 30*time.Second {
			printed = time.Now()
			fmt.Fprintf(b.progress, "bench: waiting until %s: %s\n", what, last)
		}
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return context.Cause(b.ctx)
		}
	}
}

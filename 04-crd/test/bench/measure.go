package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	"example.com/controllers/crd/generated/clientset/versioned"
	typed "example.com/controllers/crd/generated/clientset/versioned/typed/samplecrd/v1"
	informers "example.com/controllers/crd/generated/informers/externalversions"
	samplecrd "example.com/controllers/crd/generated/listers/samplecrd/v1"
	"example.com/controllers/crd/neutrontest"
	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/lesson"
	"example.com/controllers/harness/proc"
)

const (
	waitTimeout = 20 * time.Minute // for each wait; only so that a hang ends
	quietPeriod = 2 * time.Second  // without requests, after which the controller counts as at rest
	concurrency = 8                // number of Networks to create or delete at the same time
	project     = "bench"          // in Neutron
)

// phase is a part of a measurement.
type phase struct {
	took  time.Duration  // until all Networks were ready, or deleted
	costs []history.Cost // the requests to the API server
	calls map[string]int // number of requests to Neutron, by "METHOD collection"
}

// result is the measurement with one number of Networks and one of workers.
type result struct {
	networks, workers   int
	made, rest, deleted phase
}

// measure builds the controller of the repository at root and measures it on a cluster of its own, which it removes in
// any case. It writes a table for each number of Networks to out.
func measure(ctx context.Context, o options, root string, out, progress io.Writer) (all []result, err error) {
	path, err := gobuild.Build(ctx, gobuild.Program{
		Name: "network-controller", Dir: filepath.Join(root, "04-crd"), Package: "./cmd/network-controller", Sources: []string{"."},
	}, progress)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Progress: progress})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.Done():
			cancel(c.Err())
		case <-ctx.Done():
		}
	}()
	for _, networks := range o.networks {
		var results []result
		for _, workers := range o.workers {
			fmt.Fprintf(progress, "bench: %d Networks with %d workers\n", networks, workers)
			b := &bench{options: o, networks: networks, ctx: ctx, fail: cancel, cluster: c, dir: filepath.Join(root, "04-crd"), path: path}
			r, err := b.measure(workers)
			if err != nil {
				if ctx.Err() != nil {
					err = context.Cause(ctx) // the error is only a consequence of this
				}
				return nil, fmt.Errorf("%d Networks with %d workers: %w", networks, workers, err)
			}
			results = append(results, r)
		}
		if err := report(out, results); err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

// bench is a measurement with one number of Networks and one of workers.
type bench struct {
	options
	networks int             // how many
	ctx      context.Context // its cause is the error that ended the measurement
	fail     func(error)     // cancels ctx with a cause
	cluster  *cluster.Cluster
	dir      string // the lesson's directory
	path     string // the controller's program

	client   typed.NetworkInterface
	requests history.Memory // between the controller and the API server
	cloud    counter
	lister   samplecrd.NetworkLister // of an informer of the benchmark's own
}

func (b *bench) measure(workers int) (r result, err error) {
	scratch, err := os.MkdirTemp(b.cluster.Dir(), "bench-")
	if err != nil {
		return r, err
	}
	stage, err := lesson.Prepare(b.ctx, lesson.Lesson{Dir: b.dir}, b.cluster, scratch)
	if err != nil {
		return r, err
	}
	if err := stage.Open(b.ctx); err != nil {
		return r, err
	}
	manifests := filepath.Join(b.dir, "manifests")
	for _, args := range [][]string{
		{"apply", "--filename", filepath.Join(manifests, "samplecrd.k8s.io_networks.yaml"), "--filename", filepath.Join(manifests, "rbac.yaml")},
		{"wait", "--for=condition=Established", "--filename", filepath.Join(manifests, "samplecrd.k8s.io_networks.yaml")},
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
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return r, err
	}
	b.client = client.SamplecrdV1().Networks(stage.Namespace)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(stage.Namespace))
	b.lister = factory.Samplecrd().V1().Networks().Lister()
	watching, noMore := context.WithCancel(b.ctx)
	defer factory.Shutdown()
	defer noMore()
	factory.StartWithContext(watching)
	if err := factory.WaitForCacheSyncWithContext(watching).AsError(); err != nil {
		return r, err
	}

	b.cloud.server = &neutrontest.Server{}
	if b.neutron != nil {
		proxy := httputil.NewSingleHostReverseProxy(b.neutron)
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = workers
		defer transport.CloseIdleConnections()
		proxy.Transport = transport
		proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
		b.cloud.server = proxy
	}
	if err := b.cloud.unlimited(b.ctx); err != nil {
		return r, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return r, err
	}
	server := &http.Server{Handler: &b.cloud, ReadHeaderTimeout: time.Minute}
	defer server.Close()
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			b.fail(fmt.Errorf("serve Neutron: %w", err))
		}
	}()
	account, err := b.cluster.ServiceAccountConfig(b.ctx, stage.Namespace, "network-controller")
	if err != nil {
		return r, err
	}
	// The proxy stops after the controller; otherwise, the recording would end with requests that broke off.
	proxy, err := apiproxy.Start(context.WithoutCancel(b.ctx), apiproxy.Options{Upstream: account, Record: b.requests.Record})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	kubeconfig := filepath.Join(scratch, "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, proxy.Config(), stage.Namespace); err != nil {
		return r, err
	}
	ctx, stopped := context.WithCancel(b.ctx)
	defer stopped()
	running, err := start(filepath.Join(scratch, "log"), kubeconfig,
		[]string{"NEUTRON_URL=http://" + listener.Addr().String(), "NEUTRON_PROJECT=" + project},
		func(err error) {
			if ctx.Err() == nil {
				b.fail(err)
			}
		}, b.path, "--namespace="+stage.Namespace, "--address=127.0.0.1:0", fmt.Sprintf("--workers=%d", workers))
	if err != nil {
		return r, err
	}
	defer func() {
		stopped()
		err = errors.Join(err, running.stop())
	}()
	r.networks, r.workers = b.networks, workers
	return r, b.phases(&r)
}

// phases creates the Networks, waits at rest, and deletes them.
func (b *bench) phases(r *result) error {
	if err := b.until("the controller's cache has synced", func() string {
		for _, e := range b.requests.History().Events {
			if e.Resource == "networks" && e.Type == "BOOKMARK" {
				return ""
			}
		}
		return "it has not received all Networks"
	}); err != nil {
		return err
	}
	if err := b.awaitQuiet(); err != nil {
		return err
	}
	var err error
	r.made, err = b.phase(func() error {
		err := b.forAll(func(name string) error {
			_, err := b.client.Create(b.ctx, &samplecrdv1.Network{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       samplecrdv1.NetworkSpec{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
			}, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return fmt.Errorf("create the Networks: %w", err)
		}
		return b.until("all Networks are Ready", func() string {
			if _, ready := b.count(); ready < b.networks {
				return fmt.Sprintf("%d are", ready)
			}
			return ""
		})
	})
	if err != nil {
		return err
	}
	r.rest, err = b.phase(func() error {
		select {
		case <-time.After(b.rest):
			return nil
		case <-b.ctx.Done():
			return context.Cause(b.ctx)
		}
	})
	if err != nil {
		return err
	}
	r.deleted, err = b.phase(func() error {
		err := b.forAll(func(name string) error { return b.client.Delete(b.ctx, name, metav1.DeleteOptions{}) })
		if err != nil {
			return fmt.Errorf("delete the Networks: %w", err)
		}
		return b.until("all Networks are deleted", func() string {
			if existing, _ := b.count(); existing > 0 {
				return fmt.Sprintf("%d still exist", existing)
			}
			return ""
		})
	})
	return err
}

// phase measures how long do takes, and the requests from its start until the controller is at rest again.
func (b *bench) phase(do func() error) (p phase, err error) {
	from, before := time.Now(), b.cloud.counts()
	if err := do(); err != nil {
		return p, err
	}
	p.took = time.Since(from)
	if err := b.awaitQuiet(); err != nil {
		return p, err
	}
	p.costs = b.requests.History().Between(from, time.Time{}).Cost()
	p.calls = b.cloud.counts()
	for call, count := range before {
		p.calls[call] -= count
	}
	return p, nil
}

// awaitQuiet waits until the controller has sent no requests for a while. Events are written asynchronously.
func (b *bench) awaitQuiet() error {
	last, since := -1, time.Now()
	return b.until("the controller is at rest", func() string {
		if now := b.requests.Len() + b.cloud.total(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < quietPeriod {
			return "it still sends requests"
		}
		return ""
	})
}

// forAll calls do with the name of each Network, several at a time.
func (b *bench) forAll(do func(name string) error) error {
	var group errgroup.Group
	group.SetLimit(concurrency)
	for number := range b.networks {
		group.Go(func() error { return do(fmt.Sprintf("network-%d", number)) })
	}
	return group.Wait()
}

// until waits until check returns "". If that takes too long, the error has what check returned last.
func (b *bench) until(what string, check func() string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; {
		last := check()
		if last == "" {
			return nil
		}
		if time.Since(begin) > waitTimeout {
			return fmt.Errorf("wait until %s: %s, after %s", what, last, waitTimeout)
		}
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return context.Cause(b.ctx)
		}
	}
}

// count returns how many Networks the cache has, and how many of these are ready.
func (b *bench) count() (existing, ready int) {
	all, err := b.lister.List(labels.Everything())
	if err != nil {
		b.fail(err)
	}
	for _, n := range all {
		if meta.IsStatusConditionTrue(n.Status.Conditions, samplecrdv1.ConditionReady) {
			ready++
		}
	}
	return len(all), ready
}

// counter is a Neutron that counts its requests by "METHOD collection".
type counter struct {
	server http.Handler
	mu     sync.Mutex
	calls  map[string]int
}

// ServeHTTP implements [http.Handler].
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	collection, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2.0/"), "/")
	c.mu.Lock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[r.Method+" "+collection]++
	c.mu.Unlock()
	c.server.ServeHTTP(w, r)
}

// unlimited lets the project have as many networks and subnets as there will be.
func (c *counter) unlimited(ctx context.Context) error {
	r := httptest.NewRequestWithContext(ctx, http.MethodPut, "/v2.0/quotas/"+project, strings.NewReader(`{"quota": {"network": -1, "subnet": -1}}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-User-Id", "bench")
	r.Header.Set("X-Roles", "admin")
	w := httptest.NewRecorder()
	c.server.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return fmt.Errorf("set the quotas of project %s in Neutron: HTTP status %d: %s", project, w.Code, w.Body)
	}
	return nil
}

func (c *counter) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return map[string]int{}
	}
	return maps.Clone(c.calls)
}

func (c *counter) total() (total int) {
	for _, count := range c.counts() {
		total += count
	}
	return total
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/proc"
)

const (
	namespace   = "secret-sync" // the manifests' own, and the source namespace
	waitTimeout = time.Hour     // for each wait; only so that a hang ends
	quietPeriod = 2 * time.Second
	concurrency = 16 // requests of the benchmark at the same time, for what it does not measure

	burstChanges  = 5
	burstInterval = 100 * time.Millisecond
)

func namespaceName(i int) string { return fmt.Sprintf("team-%05d", i) }
func sourceName(i int) string    { return fmt.Sprintf("source-%03d", i) }

// phase is what one kind of change took, from the first request until all copies were in their final state.
type phase struct {
	took          time.Duration
	writes, reads int // requests for Secrets, without the writes of the benchmark itself
}

// lifecycle holds the phases of a size.
type lifecycle struct{ create, update, remove phase }

// sizeResult is what was measured with one size.
type sizeResult struct {
	size
	rounds []round
	rest   phase
}

// round is what was measured of each program, one after the other.
type round struct {
	plain      lifecycle
	watching   lifecycle // of a plain client that keeps the controller's watches
	controller lifecycle
	burst      phase  // several changes of the sources within half a second
	memory     uint64 // peak of the controller's resident memory, in bytes

	peer       lifecycle // of kubernetes-replicator; zero without it
	peerMemory uint64
}

// memoryResult is the memory of programs beside unrelated Secrets.
type memoryResult struct {
	unrelated     int
	before, after cost // the controller without and with the unrelated Secrets
	naive         cost // with them
}

// cost is what a program took to start, and what it uses then.
type cost struct {
	start  time.Duration // until its caches have synced
	memory uint64        // peak resident memory, in bytes
}

// result is what was measured.
type result struct {
	sizes  []sizeResult
	memory *memoryResult // nil if it was not measured
}

// measure builds the programs of the repository at root, and measures each size on a cluster of its own, which it removes
// in any case. It prints each result to out as soon as it is known.
func measure(ctx context.Context, o options, root string, out, progress io.Writer) (r result, err error) {
	paths := map[string]string{"kubernetes-replicator": o.replicator}
	dir := filepath.Join(root, "06-secret-sync")
	for _, name := range []string{"kubectl-secretsync", "naive-secretsync"} {
		paths[name], err = gobuild.Build(ctx, gobuild.Program{Name: name, Dir: dir, Package: "./cmd/" + name, Sources: []string{"."}}, progress)
		if err != nil {
			return r, err
		}
	}
	onCluster := func(do func(*bench) error) (err error) {
		c, err := cluster.Start(ctx, cluster.Options{Progress: progress})
		if err != nil {
			return err
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
		b := &bench{options: o, ctx: ctx, fail: cancel, progress: progress, cluster: c, dir: dir, paths: paths}
		if err = b.open(); err == nil {
			err = do(b)
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the error is only a consequence of this
		}
		return err
	}
	for _, s := range o.sizes {
		measured := sizeResult{size: s}
		if err := onCluster(func(b *bench) error { return b.measure(&measured) }); err != nil {
			return r, fmt.Errorf("measure %s: %w", s, err)
		}
		r.sizes = append(r.sizes, measured)
		if err := reportSize(out, o, measured); err != nil {
			return r, err
		}
	}
	if o.unrelated > 0 {
		r.memory = &memoryResult{unrelated: o.unrelated}
		if err := onCluster(func(b *bench) error { return b.measureMemory(r.memory) }); err != nil {
			return r, fmt.Errorf("measure memory: %w", err)
		}
		return r, reportMemory(out, *r.memory)
	}
	return r, nil
}

// bench is a measurement on one cluster.
type bench struct {
	options
	ctx      context.Context // its cause is the error that ended the measurement
	fail     func(error)     // cancels ctx with a cause
	progress io.Writer
	cluster  *cluster.Cluster
	dir      string            // the lesson's directory
	paths    map[string]string // of the programs
	scratch  string            // directory

	client   kubernetes.Interface // of an administrator
	copies   observer
	revision int
}

// open installs the controller's rights.
func (b *bench) open() (err error) {
	if b.scratch, err = os.MkdirTemp(b.cluster.Dir(), "bench-"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"create", "namespace", namespace},
		{"apply", "--filename", filepath.Join(b.dir, "manifests", "rbac.yaml"), "--filename", filepath.Join(b.dir, "manifests", "policy.yaml")},
	} {
		kubectl := exec.CommandContext(b.ctx, filepath.Join(b.cluster.Kubectl, "kubectl"), args...)
		kubectl.Env = append(os.Environ(), b.cluster.Env(b.scratch)...)
		proc.Group(kubectl)
		if out, err := kubectl.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	config, err := b.cluster.Config()
	if err != nil {
		return err
	}
	b.client, err = newClient(config)
	return err
}

// clientOfController returns a client with the rights of the controller's manifests.
func (b *bench) clientOfController() (kubernetes.Interface, error) {
	config, err := b.cluster.ServiceAccountConfig(b.ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	return newClient(config)
}

// newClient returns a client that has no rate limit, and encodes objects as the controller does.
func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "bench: "+format+"\n", args...)
}

// createNamespaces creates the namespaces that are to get copies, and waits until Kubernetes has put into each what it puts
// into every namespace: a ServiceAccount and a ConfigMap.
func (b *bench) createNamespaces(count int) error {
	b.say("creating %d namespaces", count)
	if err := b.forAll(count, func(i int) error {
		_, err := b.client.CoreV1().Namespaces().Create(b.ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: namespaceName(i), Labels: targetLabels()},
		}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("create the namespaces: %w", err)
	}
	for {
		accounts, err := b.client.CoreV1().ServiceAccounts("").List(b.ctx, metav1.ListOptions{FieldSelector: "metadata.name=default"})
		if err != nil {
			return err
		}
		certificates, err := b.client.CoreV1().ConfigMaps("").List(b.ctx, metav1.ListOptions{FieldSelector: "metadata.name=kube-root-ca.crt"})
		if err != nil {
			return err
		}
		if len(accounts.Items) > count && len(certificates.Items) > count { // there are other namespaces
			return nil
		}
		if err := b.sleep(time.Second); err != nil {
			return err
		}
	}
}

// measure measures one size.
func (b *bench) measure(r *sizeResult) (err error) {
	watching, end := context.WithCancel(b.ctx)
	stop, err := b.copies.watch(watching, b.client, copySelector())
	if err != nil {
		end()
		return err
	}
	defer stop()
	defer end()
	if err := b.createNamespaces(r.namespaces); err != nil {
		return err
	}
	client, err := b.clientOfController()
	if err != nil {
		return err
	}
	plain := plainClient{client: client, workers: b.workers, bytes: b.bytes}
	b.say("%s: warming up", r.size)
	few := size{1, min(200, r.namespaces)}
	if _, err := b.plain(plain, few); err != nil {
		return err
	}
	for i := range b.rounds {
		var one round
		if one.plain, err = b.plain(plain, r.size); err != nil {
			return err
		}
		if one.watching, err = b.watching(plain, r.size); err != nil {
			return err
		}
		if err := b.controller(r, &one, i == 0); err != nil {
			return err
		}
		if b.replicator != "" {
			if err := b.peer(r.size, &one); err != nil {
				return fmt.Errorf("kubernetes-replicator: %w", err)
			}
		}
		b.say("%s: round %d of %d: %s", r.size, i+1, b.rounds, one)
		r.rounds = append(r.rounds, one)
	}
	return nil
}

// String says what a round took.
func (r round) String() string {
	return fmt.Sprintf("create %s, %s, %s; update %s, %s, %s, %d changes %s; delete %s, %s, %s",
		seconds(r.plain.create.took), seconds(r.watching.create.took), seconds(r.controller.create.took),
		seconds(r.plain.update.took), seconds(r.watching.update.took), seconds(r.controller.update.took), burstChanges, seconds(r.burst.took),
		seconds(r.plain.remove.took), seconds(r.watching.remove.took), seconds(r.controller.remove.took))
}

// watching measures a plain client that also keeps the watches of the controller, with its rights, and does nothing with them.
func (b *bench) watching(client plainClient, s size) (l lifecycle, err error) {
	config, err := b.cluster.ServiceAccountConfig(b.ctx, namespace, account)
	if err != nil {
		return l, err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	stop, err := keepWatches(ctx, config)
	defer func() { cancel(); stop() }()
	if err != nil {
		return l, err
	}
	return b.plain(client, s)
}

// plain measures a plain client.
func (b *bench) plain(client plainClient, s size) (l lifecycle, err error) {
	for _, p := range []struct {
		phase *phase
		write func(_ context.Context, namespace, name, revision string) error
		left  bool
	}{{&l.create, client.create, true}, {&l.update, client.update, true}, {&l.remove, client.delete, false}} {
		b.revision++
		revision := fmt.Sprint(b.revision)
		*p.phase, err = b.phase(0, func() error {
			if err := client.forAll(b.ctx, s, revision, p.write); err != nil {
				return err
			}
			return b.awaitCopies(s, revision, p.left)
		})
		if err != nil {
			return l, err
		}
	}
	return l, nil
}

// controller measures the controller, and if rests is true, also what it does at rest.
func (b *bench) controller(r *sizeResult, one *round, rests bool) (err error) {
	running, err := b.startController()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	if err := b.until("its caches have synced", running.notSynced); err != nil {
		return err
	}
	if one.controller.create, err = b.create(r.size, source); err != nil {
		return err
	}
	if one.controller.update, err = b.change(r.size, 1); err != nil {
		return err
	}
	if one.burst, err = b.change(r.size, burstChanges); err != nil {
		return err
	}
	if rests {
		if r.rest, err = b.phase(0, func() error { return b.sleep(b.rest) }); err != nil {
			return err
		}
	}
	if one.controller.remove, err = b.remove(r.size); err != nil {
		return err
	}
	one.memory, err = running.memory()
	return err
}

// create creates the sources, each made by source, and measures until all copies are there.
func (b *bench) create(s size, source func(name string, data map[string][]byte) *corev1.Secret) (phase, error) {
	return b.phase(s.sources, func() error {
		b.revision++
		revision := fmt.Sprint(b.revision)
		if err := b.forAll(s.sources, func(i int) error {
			_, err := b.client.CoreV1().Secrets(namespace).Create(b.ctx, source(sourceName(i), data(revision, b.bytes)), metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
		return b.awaitCopies(s, revision, true)
	})
}

// change changes the sources, several times at short intervals, and measures until all copies follow.
func (b *bench) change(s size, times int) (phase, error) {
	return b.phase(times*s.sources, func() error {
		var revision string
		for i := range times {
			if i > 0 {
				if err := b.sleep(burstInterval); err != nil {
					return err
				}
			}
			b.revision++
			revision = fmt.Sprint(b.revision)
			patch, err := json.Marshal(map[string]any{"data": data(revision, b.bytes)})
			if err != nil {
				return err
			}
			if err := b.forAll(s.sources, func(i int) error {
				_, err := b.client.CoreV1().Secrets(namespace).Patch(b.ctx, sourceName(i), types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			}); err != nil {
				return err
			}
		}
		return b.awaitCopies(s, revision, true)
	})
}

// remove deletes the sources, and measures until no copy is left.
func (b *bench) remove(s size) (phase, error) {
	return b.phase(s.sources, func() error {
		if err := b.forAll(s.sources, func(i int) error {
			return b.client.CoreV1().Secrets(namespace).Delete(b.ctx, sourceName(i), metav1.DeleteOptions{})
		}); err != nil {
			return err
		}
		return b.awaitCopies(s, "", false)
	})
}

// phase measures do, and the requests for Secrets until they have ended. own is the number of writes that do makes itself.
func (b *bench) phase(own int, do func() error) (p phase, err error) {
	before, err := countRequests(b.ctx, b.client)
	if err != nil {
		return p, err
	}
	from := time.Now()
	if err := do(); err != nil {
		return p, err
	}
	p.took = time.Since(from)
	after, err := b.awaitQuiet()
	if err != nil {
		return p, err
	}
	p.writes, p.reads = after.writes()-before.writes()-own, after.reads()-before.reads()
	return p, nil
}

// awaitQuiet waits until the API server has not answered a request for Secrets for a while.
func (b *bench) awaitQuiet() (last requests, err error) {
	for {
		now, err := countRequests(b.ctx, b.client)
		if err != nil || maps.Equal(now, last) {
			return now, err
		}
		last = now
		if err := b.sleep(quietPeriod); err != nil {
			return nil, err
		}
	}
}

// awaitCopies waits until all copies hold a revision, or until none are left.
func (b *bench) awaitCopies(s size, revision string, left bool) error {
	return b.until("the copies are as they should be", func() string {
		all, current := b.copies.count(revision)
		switch {
		case !left && all > 0:
			return fmt.Sprintf("%d are left", all)
		case left && (current < s.copies() || all > current):
			return fmt.Sprintf("%d of %d are", current, s.copies())
		}
		return ""
	})
}

// measureMemory measures the memory of the controller beside Secrets that are no business of its own.
func (b *bench) measureMemory(r *memoryResult) error {
	const sources, namespaces = 1, 100
	watching, end := context.WithCancel(b.ctx)
	stop, err := b.copies.watch(watching, b.client, copySelector())
	if err != nil {
		end()
		return err
	}
	defer stop()
	defer end()
	if err := b.createNamespaces(namespaces); err != nil {
		return err
	}
	if _, err := b.client.CoreV1().Secrets(namespace).Create(b.ctx, source(sourceName(0), data("x", b.bytes)), metav1.CreateOptions{}); err != nil {
		return err
	}
	start := func(start func() (*program, error), copies bool) (p cost, err error) {
		begin := time.Now()
		running, err := start()
		if err != nil {
			return p, err
		}
		defer func() {
			if stopped := running.stop(); copies { // the naive program does not handle SIGTERM
				err = errors.Join(err, stopped)
			}
		}()
		if err := b.until("its caches have synced", running.notSynced); err != nil {
			return p, err
		}
		p.start = time.Since(begin)
		if copies {
			if err := b.awaitCopies(size{sources, namespaces}, "x", true); err != nil {
				return p, err
			}
		}
		p.memory, err = running.memory()
		return p, err
	}
	b.say("the controller, without other Secrets")
	if r.before, err = start(b.startController, true); err != nil {
		return err
	}
	b.say("creating %d Secrets of %d KB", r.unrelated, unrelatedBytes/1000)
	other, err := b.client.CoreV1().Namespaces().Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unrelated"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := b.forAll(r.unrelated, func(i int) error {
		_, err := b.client.CoreV1().Secrets(other.Name).Create(b.ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("unrelated-%d", i)}, Data: data("", unrelatedBytes),
		}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("create unrelated Secrets: %w", err)
	}
	b.say("the controller, beside %d other Secrets", r.unrelated)
	if r.after, err = start(b.startController, true); err != nil {
		return err
	}
	b.say("the naive program, beside %d other Secrets", r.unrelated)
	r.naive, err = start(func() (*program, error) {
		return b.start("naive-secretsync", b.cluster.Kubeconfig, "on-events", namespace)
	}, false)
	return err
}

// startController starts the controller with the rights of its manifests.
func (b *bench) startController() (*program, error) {
	config, err := b.cluster.ServiceAccountConfig(b.ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(b.scratch, "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, config, namespace); err != nil {
		return nil, err
	}
	return b.start("kubectl-secretsync", kubeconfig, controllerArgs(kubeconfig, b.workers)...)
}

func (b *bench) start(name, kubeconfig string, args ...string) (*program, error) {
	log := filepath.Join(b.scratch, fmt.Sprintf("%s.%d.log", name, time.Now().UnixNano()))
	return start(log, kubeconfig, b.fail, b.paths[name], args...)
}

// forAll calls do with each number below count, several at a time, until one returns an error. It reports its progress.
func (b *bench) forAll(count int, do func(i int) error) error {
	group, ctx := errgroup.WithContext(b.ctx)
	group.SetLimit(concurrency)
	printed := time.Now()
	for i := range count {
		if ctx.Err() != nil {
			break
		}
		if time.Since(printed) > 10*time.Second {
			printed = time.Now()
			b.say("%d of %d", i, count)
		}
		group.Go(func() error { return do(i) })
	}
	return cmp.Or(group.Wait(), context.Cause(b.ctx))
}

func (b *bench) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-b.ctx.Done():
		return context.Cause(b.ctx)
	}
}

// until waits until check returns "". If that takes too long, the error has what check returned last.
func (b *bench) until(what string, check func() string) error {
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
		if time.Since(printed) > 10*time.Second {
			printed = time.Now()
			b.say("waiting until %s: %s", what, last)
		}
		if err := b.sleep(10 * time.Millisecond); err != nil {
			return err
		}
	}
}

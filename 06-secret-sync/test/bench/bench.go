package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/cluster"
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

func sourceName(i int) string { return fmt.Sprintf("source-%03d", i) }

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

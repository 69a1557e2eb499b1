package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/image"
	"example.com/controllers/harness/kind"
	"example.com/controllers/harness/lesson"
	"example.com/controllers/harness/proc"
)

// hangTimeout ends a wait that would otherwise hang. It says nothing about how long anything should take.
const hangTimeout = 5 * time.Minute

// world is the cluster that all tests share.
var world struct {
	*kind.Cluster
	client kubernetes.Interface
	root   string // of the repository
}

func TestMain(m *testing.M) {
	ctx := proc.Context()
	if err := connect(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	// proc.Context has caught the signal, so the tests would run on, and change a cluster that is no longer theirs.
	context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "e2e: interrupted")
		os.Exit(1)
	})
	os.Exit(m.Run())
}

// connect opens the cluster, and loads all images.
func connect(ctx context.Context) (err error) {
	kubeconfig := os.Getenv(cluster.KubeconfigVariable)
	if kubeconfig == "" || os.Getenv(kind.NameVariable) == "" {
		return fmt.Errorf("these tests need a kind cluster; run them with: make e2e")
	}
	if world.root, err = cluster.Root(ctx); err != nil {
		return err
	}
	if world.Cluster, err = kind.Up(ctx, kind.Options{Dir: filepath.Dir(kubeconfig), Progress: os.Stderr}); err != nil {
		return err
	}
	if world.client, err = world.Client(); err != nil {
		return err
	}
	images, err := buildImages(ctx)
	if err != nil {
		return err
	}
	return world.Load(ctx, images...)
}

// buildImages returns the images of all lessons' programs, of lesson 4's cloud, and stand-ins for all others.
func buildImages(ctx context.Context) ([]*image.Image, error) {
	lessons, err := lesson.All(world.root)
	if err != nil {
		return nil, err
	}
	var images []*image.Image
	workloads := map[string]bool{}
	add := func(name string, programs ...image.Program) error {
		start := time.Now()
		built, err := image.Build(ctx, image.Options{Name: name, Programs: programs})
		if err == nil {
			images = append(images, built)
			fmt.Fprintf(os.Stderr, "e2e: built %s (%s)\n", name, time.Since(start).Round(100*time.Millisecond))
		}
		return err
	}
	for _, l := range lessons {
		of, err := l.Images()
		if err != nil {
			return nil, err
		}
		for _, name := range of.Workloads {
			workloads[name] = true
		}
		for _, name := range of.Programs {
			pkg, _ := l.Package(name)
			programs := []image.Program{{Dir: l.Dir, Package: pkg}}
			if name == "kubectl-reboot:dev" {
				programs = append(programs, image.Program{Dir: filepath.Join(world.root, "e2e"), Package: "./on-node"})
			}
			if err := add(name, programs...); err != nil {
				return nil, err
			}
		}
	}
	if err := add("neutron:dev", image.Program{Dir: filepath.Join(world.root, "04-crd"), Package: "./cmd/neutron"}); err != nil {
		return nil, err
	}
	for name := range workloads {
		standIn, err := kind.StandIns(ctx, name)
		if err != nil {
			return nil, err
		}
		images = append(images, standIn...)
	}
	return images, nil
}

// kubectl runs kubectl in the root of the repository, and returns its output. The test fails if kubectl does.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t.Context(), args...)
	require.NoError(t, err)
	return out
}

func tryKubectl(ctx context.Context, args ...string) (string, error) {
	scratch, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	cmd := exec.CommandContext(ctx, filepath.Join(world.Kubectl, "kubectl"), args...)
	cmd.Dir, cmd.Env = world.root, append(os.Environ(), world.Env(scratch)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// install applies a kustomization in a namespace that it creates, and one that an earlier run has left is deleted first.
// When the test is over, it deletes all of it, after it has collected what explains a failure.
func install(t *testing.T, namespace, kustomization string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	remove := func() error {
		_, err := tryKubectl(ctx, "delete", "--ignore-not-found", "-k", kustomization)
		if err == nil {
			_, err = tryKubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found", "--timeout=3m")
		}
		return err
	}
	require.NoError(t, remove())
	t.Cleanup(func() {
		collect(t, namespace)
		require.NoError(t, remove())
	})
	kubectl(t, "create", "namespace", namespace)
	kubectl(t, "apply", "-k", kustomization)
}

// collect writes the logs, Events and objects of a namespace to a directory if the test has failed.
func collect(t *testing.T, namespace string) {
	if !t.Failed() {
		return
	}
	dir := filepath.Join(world.root, ".workshop", "e2e", strings.ReplaceAll(t.Name(), "/", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Log(err)
		return
	}
	ctx := context.WithoutCancel(t.Context())
	write := func(name string, args ...string) {
		out, err := tryKubectl(ctx, args...)
		if err != nil {
			out += err.Error()
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(out), 0o644); err != nil {
			t.Log(err)
		}
	}
	write("nodes.txt", "describe", "nodes")
	write("events.txt", "get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp", "--output=wide")
	write("objects.yaml", "get", "all,configmaps,leases,poddisruptionbudgets", "--namespace="+namespace, "--output=yaml")
	pods, _ := tryKubectl(ctx, "get", "pods", "--namespace="+namespace, "--output=name")
	for pod := range strings.FieldsSeq(pods) {
		name := strings.TrimPrefix(pod, "pod/")
		write(name+".log", "logs", pod, "--namespace="+namespace, "--all-containers")
		write(name+".previous.log", "logs", pod, "--namespace="+namespace, "--all-containers", "--previous")
	}
	t.Logf("logs, Events and objects are in %s", dir)
}

// eventually calls check until it returns "". If that does not happen, the test fails with what check returned last.
func eventually(t *testing.T, what string, check func(ctx context.Context) string) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%s: %s (%v)", what, last, err)
	}
}

// Package clustertest is for tests that need a real API server. They share one control plane, and each has a namespace
// of its own.
package clustertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/lesson"
	"example.com/controllers/harness/manifest"
	"example.com/controllers/harness/play"
	"example.com/controllers/harness/testinput"
)

// hangTimeout ends a wait that would otherwise hang. It says nothing about how long anything should take.
const hangTimeout = 5 * time.Minute

// Env is what a test works with: a cluster, an administrator's client, and a namespace of the test's own.
type Env struct {
	*cluster.Cluster
	Client    kubernetes.Interface
	Namespace string

	t testing.TB
}

// New returns the shared cluster and a new namespace in it, which is removed when the test is over.
func New(t testing.TB) *Env {
	t.Helper()
	c, err := cluster.Shared()
	if err != nil {
		t.Fatalf("no cluster: %v", err)
	}
	return On(t, c)
}

// On is New for a cluster that the test has started itself.
func On(t testing.TB, c *cluster.Cluster) *Env {
	t.Helper()
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	t.Cleanup(func() {
		// t.Context() is cancelled before cleanups run.
		err := client.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{})
		select {
		case <-c.Done():
			t.Errorf("the control plane has ended: %v", c.Err())
			return
		default:
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete namespace %s: %v", namespace.Name, err)
		}
	})
	return &Env{Cluster: c, Client: client, Namespace: namespace.Name, t: t}
}

// Kubectl runs kubectl in the test's namespace and returns its output. The test fails if kubectl does.
func (e *Env) Kubectl(args ...string) string {
	e.t.Helper()
	out, err := e.TryKubectl(args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// TryKubectl is Kubectl for commands that may fail. The error includes their output.
func (e *Env) TryKubectl(args ...string) (string, error) {
	return e.kubectl(e.t.Context(), "", e.t.TempDir(), args...)
}

func (e *Env) kubectl(ctx context.Context, stdin, scratch string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(e.Cluster.Kubectl, "kubectl"), append([]string{"--namespace", e.Namespace}, args...)...)
	cmd.Env = append(os.Environ(), e.Env(scratch)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}

// Install applies a directory's kustomization in the test's namespace, and deletes its objects when the test is over,
// those outside of the namespace included.
func (e *Env) Install(manifests string) {
	e.t.Helper()
	testinput.Declare(manifests)
	dir := e.t.TempDir()
	if err := manifest.Overlay(dir, e.Namespace, manifests); err != nil {
		e.t.Fatal(err)
	}
	objects := e.Kubectl("kustomize", dir)
	scratch := e.t.TempDir()
	if _, err := e.kubectl(e.t.Context(), objects, scratch, "apply", "-f", "-"); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		_, err := e.kubectl(context.Background(), objects, scratch, "delete", "--ignore-not-found", "--wait=false", "-f", "-")
		if err != nil {
			e.t.Errorf("delete the objects of the manifests: %v", err)
		}
	})
}

// Eventually calls check until it returns "": often at first, then a few times a second, because most checks are requests.
// If that does not happen, the test fails with what check returned last.
func (e *Env) Eventually(what string, check func(context.Context) string) {
	e.t.Helper()
	var last string
	ctx, cancel := context.WithTimeout(e.t.Context(), hangTimeout)
	defer cancel()
	delay := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.3, Cap: 250 * time.Millisecond, Steps: 10}.DelayFunc()
	err := delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == "", nil
	})
	if err != nil {
		e.t.Fatalf("%s: %s (%v)", what, last, err)
	}
}

// PlayLesson plays the page of the lesson in dir as "make lesson" does, except that the code on the page must be the code
// in the files. The page gets a control plane of its own, because pages read the API server's metrics. TestMain must call
// guard.Main.
func PlayLesson(t testing.TB, dir string) {
	t.Helper()
	testinput.Declare(dir)
	ctx := t.Context()
	page, err := play.Read(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(ctx, cluster.Options{Nodes: cmp.Or(page.Nodes, 3), Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	absolute, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	stage, err := lesson.Prepare(ctx, lesson.Lesson{Dir: absolute}, c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := stage.Open(ctx); err != nil {
		t.Fatal(err)
	}
	root, err := cluster.Root(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if stage.Workshop, err = gobuild.Build(ctx, gobuild.Workshop(filepath.Join(root, "harness")), os.Stderr); err != nil {
		t.Fatal(err)
	}
	// A page waits only so long for a program to print a line. With an empty cache, compiling it may take longer.
	if err := gobuild.Packages(ctx, absolute, filepath.Base(absolute), "", os.Stderr); err != nil {
		t.Fatal(err)
	}
	var screen bytes.Buffer
	player := play.Player{Out: &screen, Env: []string{"CGO_ENABLED=0"}} // as the Makefile does; the race detector needs cgo, the page does not
	if _, _, err := stage.Play(ctx, player); err != nil {
		t.Fatalf("%v\n\nthe page as it was played:\n%s", err, screen.String())
	}
}

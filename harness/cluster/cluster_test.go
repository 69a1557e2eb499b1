package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/controllers/harness/cluster"
)

// TestMain lets tests run this test binary as another process: with CLUSTER_TEST_PARENT set it starts a cluster and
// waits to be killed; with CLUSTER_TEST_UP, the data directory, it leaves a cluster up and exits.
func TestMain(m *testing.M) {
	if os.Getenv("CLUSTER_TEST_PARENT") != "" {
		c, err := cluster.Start(context.Background(), cluster.Options{})
		fmt.Println(err == nil, c.Dir())
		select {}
	}
	if dir := os.Getenv("CLUSTER_TEST_UP"); dir != "" {
		if _, err := cluster.Up(context.Background(), cluster.Options{}, dir); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// start starts a cluster with a directory for temporary files, temp, that belongs to this test alone.
func start(t *testing.T, o cluster.Options) (c *cluster.Cluster, temp string) {
	t.Helper()
	temp = t.TempDir()
	t.Setenv("TMPDIR", temp)
	c, err := cluster.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop() })
	return c, temp
}

func pidOf(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	return pid
}

// requireGone waits until the process has exited and released its files.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		p, err := process.NewProcess(int32(pid))
		if err != nil {
			return errors.Is(err, process.ErrorProcessNotRunning)
		}
		// A zombie that nobody reaps, as in a container without an init process, counts as gone. It still has
		// its files open until all its other threads have exited.
		status, err := p.Status()
		threads, threadsErr := p.NumThreads()
		return err == nil && threadsErr == nil && slices.Contains(status, process.Zombie) && threads == 1
	}, time.Minute, 10*time.Millisecond, "process %d is still running", pid)
}

// requireEmpty waits until the directory is empty.
func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(dir)
		return err == nil && len(left) == 0
	}, time.Minute, 10*time.Millisecond, "%s is not empty", dir)
}

func TestStopLeavesNothingBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	c, temp := start(t, cluster.Options{Nodes: 1})
	require.Equal(t, cluster.KubernetesVersion, c.Version)
	require.Equal(t, 1, c.Nodes)
	info, err := os.Stat(c.Kubeconfig)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(c.Dir())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	pid := pidOf(t, c.Dir())
	require.NoError(t, c.Stop())
	requireGone(t, pid)
	requireEmpty(t, temp)
	goleak.VerifyNone(t, before)
}

func TestStartWaitsForAllNodes(t *testing.T) {
	const many = 40
	c, _ := start(t, cluster.Options{Nodes: many})
	require.Equal(t, many, c.Nodes)
	client, err := c.Client()
	require.NoError(t, err)
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, nodes.Items, many)
	for _, node := range nodes.Items {
		require.True(t, slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), node.Name)
	}
	ready, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ok", string(ready))
}

func TestClustersAreIndependent(t *testing.T) {
	ctx := t.Context()
	first, _ := start(t, cluster.Options{})
	second, _ := start(t, cluster.Options{})
	one, err := first.Client()
	require.NoError(t, err)
	two, err := second.Client()
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	_, err = one.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = two.CoreV1().Namespaces().Get(ctx, "mine", metav1.GetOptions{})
	require.ErrorContains(t, err, "not found")

	// The administrator of one cluster is unknown to the other, although their certificate authorities have the same
	// name.
	stranger, err := first.Config()
	require.NoError(t, err)
	other, err := second.Config()
	require.NoError(t, err)
	stranger.Host, stranger.CAData = other.Host, other.CAData
	three, err := kubernetes.NewForConfig(stranger)
	require.NoError(t, err)
	_, err = three.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)

	require.NoError(t, first.Stop())
	_, err = two.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestControlPlaneDiesWithItsParent(t *testing.T) {
	temp := t.TempDir()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "CLUSTER_TEST_PARENT=1", "TMPDIR="+temp)
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "true ")
	require.True(t, ok, line)
	pid := pidOf(t, dir)
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	requireGone(t, pid)
	requireEmpty(t, temp)
}

func TestDoneAndErrReportADeadControlPlane(t *testing.T) {
	c, temp := start(t, cluster.Options{})
	require.NoError(t, syscall.Kill(pidOf(t, c.Dir()), syscall.SIGKILL))
	<-c.Done()
	require.ErrorContains(t, c.Err(), "the control plane ended: signal: killed\nthe last lines of its log:\n  ")
	require.NoError(t, c.Stop())
	requireEmpty(t, temp)
}

// Its clients do not know another address.
func TestCrashSaysIfTheAddressIsTaken(t *testing.T) {
	options := cluster.Options{}
	c, _ := start(t, options)
	require.NoError(t, c.Crash(t.Context(), options))
	config, err := c.Config()
	require.NoError(t, err)
	address := strings.TrimPrefix(config.Host, "https://")
	taken := make(chan net.Listener, 1)
	go func() { // takes the address as soon as it is free, long before the new control plane wants it
		for {
			if listener, err := net.Listen("tcp", address); err == nil {
				taken <- listener
				return
			}
		}
	}()
	require.EqualError(t, c.Crash(t.Context(), options), "start the control plane again: another program has taken its address https://"+address+" while it was down")
	require.NoError(t, (<-taken).Close())
}

func TestFailedStartSaysWhyAndLeavesNothingBehind(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	_, err := cluster.Start(t.Context(), cluster.Options{APIServerFlags: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "the control plane did not start: exit status 1\nthe last lines of its log:\n")
	require.ErrorContains(t, err, "unknown flag: --no-such-flag")
	requireEmpty(t, temp)

	_, err = cluster.Start(t.Context(), cluster.Options{Nodes: -1})
	require.ErrorContains(t, err, "the number of nodes is -1; it must be 0 or more")
	requireEmpty(t, temp)

	t.Setenv("TMPDIR", filepath.Join(temp, "nowhere"))
	_, err = cluster.Start(t.Context(), cluster.Options{})
	require.ErrorContains(t, err, "create a data directory for the cluster: ")

	t.Setenv(cluster.ProgramVariable, "/nowhere/controlplane")
	_, err = cluster.Start(t.Context(), cluster.Options{})
	require.ErrorContains(t, err, "WORKSHOP_CONTROLPLANE is not the path of a program: ")
}

func TestInterruptedStartLeavesNothingBehind(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("Ctrl-C")
	go func() {
		// Interrupt it as soon as there is something that could be left behind.
		for {
			if found, _ := filepath.Glob(filepath.Join(temp, "*", "pid")); len(found) > 0 {
				cancel(why)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := cluster.Start(ctx, cluster.Options{Nodes: 3})
	require.ErrorIs(t, err, why)
	requireEmpty(t, temp)
}

// When a control plane and its parent are killed together, the next Start removes the data directory. It keeps
// directories that are in use, were just created, or belong to somebody else.
func TestStartRemovesStaleDataDirectories(t *testing.T) {
	inUse, temp := start(t, cluster.Options{})
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(inUse.Dir(), old, old))
	left := filepath.Join(temp, "workshop-cluster-left")
	fresh := filepath.Join(temp, "workshop-cluster-fresh")
	other := filepath.Join(temp, "somebody-elses")
	for _, dir := range []string{left, fresh, other} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	require.NoError(t, os.Chtimes(left, old, old))
	require.NoError(t, os.Chtimes(other, old, old))

	next, err := cluster.Start(t.Context(), cluster.Options{})
	require.NoError(t, err)
	defer next.Stop()
	require.NoDirExists(t, left)
	require.DirExists(t, fresh)
	require.DirExists(t, other)
	require.DirExists(t, inUse.Dir())
}

// While a control plane is down, nobody has locked its data directory.
func TestStartLeavesACrashedClusterAlone(t *testing.T) {
	options := cluster.Options{Nodes: 1}
	c, _ := start(t, options)
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(c.Dir(), old, old))
	ctx, cancel := context.WithCancel(t.Context())
	others := make(chan struct{})
	go func() {
		defer close(others)
		for ctx.Err() == nil {
			_, _ = cluster.Start(ctx, cluster.Options{Nodes: -1}) // fails, after it has removed stale directories
		}
	}()
	err := c.Crash(t.Context(), options)
	cancel()
	<-others
	require.NoError(t, err)
	client, err := c.Client()
	require.NoError(t, err)
	_, err = client.CoreV1().Nodes().Get(t.Context(), "node-0", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestUpKeepsItsState(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "up")
	t.Cleanup(func() { require.NoError(t, cluster.Reset(context.Background(), dir)) })
	_, err := cluster.Find(ctx, dir, nil)
	require.ErrorIs(t, err, cluster.ErrNotUp)
	require.ErrorIs(t, cluster.Down(ctx, dir), cluster.ErrNotUp)

	up := func() (server string) {
		t.Helper()
		c, err := cluster.Up(ctx, cluster.Options{Nodes: 2}, dir)
		require.NoError(t, err)
		require.Equal(t, 2, c.Nodes)
		require.Nil(t, c.Done(), "this process does not own the control plane")
		require.NoError(t, c.Stop(), "Stop has no effect")
		config, err := c.Config()
		require.NoError(t, err)
		return config.Host
	}
	first := up()
	c, err := cluster.Find(ctx, dir, nil)
	require.NoError(t, err)
	client, err := c.Client()
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	made, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = cluster.Up(ctx, cluster.Options{}, dir)
	require.ErrorIs(t, err, cluster.ErrAlreadyUp)

	requireState := func() {
		t.Helper()
		found, err := client.CoreV1().Namespaces().Get(ctx, "mine", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, made.UID, found.UID)
	}
	pid := pidOf(t, dir)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	requireGone(t, pid)
	_, err = cluster.Find(ctx, dir, nil)
	require.ErrorIs(t, err, cluster.ErrNotUp)
	require.Equal(t, first, up(), "the address is the same, so kubeconfigs stay valid")
	requireState()
	pid = pidOf(t, dir)
	require.NoError(t, cluster.Down(ctx, dir))
	requireGone(t, pid)
	require.Equal(t, first, up())
	requireState()
	require.NoError(t, cluster.Reset(ctx, dir))
	require.NoDirExists(t, dir)
}

func TestUpOutlivesTheProcessThatStartedIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "up")
	t.Cleanup(func() { require.NoError(t, cluster.Reset(context.Background(), dir)) })
	starter := exec.Command(os.Args[0])
	starter.Env = append(os.Environ(), "CLUSTER_TEST_UP="+dir)
	out, err := starter.CombinedOutput()
	require.NoError(t, err, "%s", out)
	c, err := cluster.Find(t.Context(), dir, nil)
	require.NoError(t, err)
	require.Equal(t, cluster.KubernetesVersion, c.Version)
}

func TestFailedUpLeavesNothingBehind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "up")
	_, err := cluster.Up(t.Context(), cluster.Options{APIServerFlags: []string{"--no-such-flag"}}, dir)
	require.ErrorContains(t, err, "unknown flag: --no-such-flag")
	require.NoDirExists(t, dir)
}

func TestOpenUsesACopyOfTheKubeconfig(t *testing.T) {
	shared, err := cluster.Shared()
	require.NoError(t, err)
	t.Setenv("KUBECONFIG", shared.Kubeconfig)
	before, err := os.ReadFile(shared.Kubeconfig)
	require.NoError(t, err)

	c, err := cluster.Open(t.Context(), "workshop", t.TempDir(), nil)
	require.NoError(t, err)
	require.Equal(t, cluster.KubernetesVersion, c.Version)
	require.NotEqual(t, shared.Kubeconfig, c.Kubeconfig)
	after, err := os.ReadFile(shared.Kubeconfig)
	require.NoError(t, err)
	require.Equal(t, before, after, "the user's own kubeconfig is unchanged")

	_, err = cluster.Open(t.Context(), "moon", t.TempDir(), nil)
	require.ErrorContains(t, err, `there is no context "moon" in `+shared.Kubeconfig+"; it has workshop")
	t.Setenv("KUBECONFIG", "/nowhere")
	_, err = cluster.Open(t.Context(), "moon", t.TempDir(), nil)
	require.ErrorContains(t, err, `there is no context "moon" in /nowhere; it has none`)

	unreachable := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, cluster.WriteKubeconfig(unreachable, &rest.Config{Host: "https://127.0.0.1:1"}, ""))
	t.Setenv("KUBECONFIG", unreachable)
	_, err = cluster.Open(t.Context(), "workshop", t.TempDir(), nil)
	require.ErrorContains(t, err, `context "workshop" (https://127.0.0.1:1) does not answer: `)
}

func TestOpenCopiesOneContextOnly(t *testing.T) {
	shared, err := cluster.Shared()
	require.NoError(t, err)
	users, err := clientcmd.LoadFromFile(shared.Kubeconfig)
	require.NoError(t, err)
	users.Contexts["production"] = &clientcmdapi.Context{Cluster: "production", AuthInfo: "boss"}
	users.Clusters["production"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	users.AuthInfos["boss"] = &clientcmdapi.AuthInfo{Username: "boss"}
	users.CurrentContext = "production"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*users, path))
	t.Setenv("KUBECONFIG", path)

	c, err := cluster.Open(t.Context(), "workshop", t.TempDir(), nil)
	require.NoError(t, err)
	ours, err := clientcmd.LoadFromFile(c.Kubeconfig)
	require.NoError(t, err)
	require.Equal(t, "workshop", ours.CurrentContext)
	require.Len(t, ours.Contexts, 1)
	require.Len(t, ours.Clusters, 1)
	require.Len(t, ours.AuthInfos, 1)
	_, err = cluster.Open(t.Context(), "moon", t.TempDir(), nil)
	require.ErrorContains(t, err, "; it has production, workshop")
}

// The server accepts connections but never responds, as one behind a broken tunnel does.
func TestOpenTimesOutOnAnUnresponsiveServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, cluster.WriteKubeconfig(path, &rest.Config{Host: "https://" + silent.Addr().String()}, ""))
	t.Setenv("KUBECONFIG", path)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = cluster.Open(ctx, "workshop", t.TempDir(), nil)
	require.ErrorContains(t, err, "does not answer: ")
	require.NoError(t, ctx.Err(), "Open has a timeout of its own")

	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = cluster.Open(ctx, "workshop", t.TempDir(), nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestServiceAccountConfigNamesAMissingAccount(t *testing.T) {
	shared, err := cluster.Shared()
	require.NoError(t, err)
	_, err = shared.ServiceAccountConfig(t.Context(), "default", "nobody")
	require.ErrorContains(t, err, "create a token for ServiceAccount default/nobody: ")
}

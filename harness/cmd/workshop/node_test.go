package main

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/machine"
)

// newMachine adds a machine to the shared cluster that no Pods are scheduled on. Its name is also the value of its label
// "test".
func (r *repository) newMachine() (client kubernetes.Interface, name string) {
	r.t.Helper()
	shared, err := cluster.Shared()
	require.NoError(r.t, err)
	client, err = shared.Client()
	require.NoError(r.t, err)
	node := machine.Node(r.namespace, shared.Version)
	node.Labels["test"] = node.Name
	node.Spec.Taints = []corev1.Taint{{Key: "test", Value: node.Name, Effect: corev1.TaintEffectNoSchedule}}
	_, err = client.CoreV1().Nodes().Create(r.t.Context(), node, metav1.CreateOptions{})
	require.NoError(r.t, err)
	r.t.Cleanup(func() {
		if err := machine.Remove(context.Background(), client, node.Name); !apierrors.IsNotFound(err) {
			require.NoError(r.t, err)
		}
	})
	return client, node.Name
}

func TestNode(t *testing.T) {
	r := newRepository(t, "$ true")
	client, name := r.newMachine()
	shared, err := cluster.Shared()
	require.NoError(t, err)
	elsewhere := *r
	elsewhere.dir = t.TempDir() // it needs no repository
	r = &elsewhere
	node := func() *corev1.Node {
		t.Helper()
		node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return node
	}
	succeeds := func(args ...string) {
		t.Helper()
		out, status := r.workshop("", append([]string{"node"}, args...)...)
		require.Zero(t, status, "%s", out)
		require.Equal(t, "node "+name+": "+args[0]+"\n", out)
	}
	kubeconfig := "--kubeconfig=" + shared.Kubeconfig
	succeeds("not-ready", name, kubeconfig)
	require.Contains(t, node().Annotations, machine.ReadyAnnotation)
	r = r.with(cluster.KubeconfigVariable + "=" + shared.Kubeconfig)
	succeeds("ready", name)
	require.NotContains(t, node().Annotations, machine.ReadyAnnotation)
	succeeds("set-reboot", name, "--behavior=hang", "--boot-time=1h")
	require.Equal(t, "hang", node().Annotations[machine.RebootAnnotation])
	require.Equal(t, "1h0m0s", node().Annotations[machine.BootTimeAnnotation])
	succeeds("reboot", name)
	reboot, err := machine.RebootOf(node())
	require.NoError(t, err)
	require.Equal(t, machine.Hang, reboot.Behavior)
	succeeds("off", name)
	require.False(t, machine.IsOn(node()))
	succeeds("on", name)
	require.True(t, machine.IsOn(node()))
	succeeds("set-reboot", name)
	require.NotContains(t, node().Annotations, machine.RebootAnnotation)
	require.NotContains(t, node().Annotations, machine.BootTimeAnnotation)
	succeeds("reboot", name, "--behavior=ignore")
	require.NotContains(t, node().Annotations, machine.RebootingAnnotation)
	for want, args := range map[string][]string{
		`a reboot cannot be "slow"; it is one of ["normal"`:       {"reboot", name, "--behavior=slow"},
		"the boot time is -1s; it must not be negative":           {"reboot", name, "--boot-time=-1s"},
		`change node nowhere: nodes "nowhere" not found`:          {"reboot", "nowhere"},
		"read kubeconfig /nowhere":                                {"off", name, "--kubeconfig=/nowhere"},
		"requires at least 1 arg(s), only received 0":             {"run"},
		"run on the machines: exec: \"no-such-program\"":          {"run", "--", "no-such-program"},
		`account "x" is not of the form NAMESPACE/SERVICEACCOUNT`: {"run", "--account=x", "--", "true"},
		`unable to parse requirement`:                             {"run", "--selector=a in", "--", "true"},
	} {
		out, status := r.workshop("", append([]string{"node"}, args...)...)
		require.Equal(t, 1, status, "%s", out)
		require.Contains(t, out, want)
	}
	succeeds("remove", name)
	r.requireNothingLeft()
}

// A process on a machine reboots it with the command, and is started again with the same one. It has to remember that.
func TestNodeRun(t *testing.T) {
	r := newRepository(t, "$ true")
	client, name := r.newMachine()
	shared, err := cluster.Shared()
	require.NoError(t, err)
	elsewhere := *r
	elsewhere.dir = t.TempDir()
	r = &elsewhere
	const script = `echo "started on $NODE_NAME"
if mkdir rebooted; then WORKSHOP_TEST_MAIN=1 "$0" node reboot "$1" --boot-time 1ms; fi
exec sleep 1000`
	cmd := r.command("node", "run", "--kubeconfig", shared.Kubeconfig, "--selector=test="+name, "--", "sh", "-c", script, os.Args[0], "{node}")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	errors, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer errors.Close()
	stderr := func() string {
		text, err := os.ReadFile(errors.Name())
		require.NoError(t, err)
		return string(text)
	}
	cmd.Stderr = errors
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for starts := 0; starts < 2; {
		require.True(t, lines.Scan(), "%s", stderr())
		if lines.Text() == "["+name+"] started on "+name {
			starts++
		}
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
	}
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode())
	require.Contains(t, stderr(), "["+name+"] sh: started, boot 1\n["+name+"] sh: killed: the machine is off, or has been removed\n["+name+"] sh: started, boot 2\n")
	require.Contains(t, stderr(), "workshop: interrupted; everything it started has been stopped\n")
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, 2, machine.Boots(node))
	require.DirExists(t, filepath.Join(r.dir, "rebooted"))
	r.requireNothingLeft()
}

// The directory of the processes, which has their credentials, is removed even if the program that made it was killed.
func TestKilledNodeRun(t *testing.T) {
	r := newRepository(t, "$ true")
	_, name := r.newMachine()
	shared, err := cluster.Shared()
	require.NoError(t, err)
	const killsItsParent = "touch started; kill -9 $PPID; exec sleep 1000"
	out, status := r.workshop("", "node", "run", "--kubeconfig", shared.Kubeconfig, "--selector=test="+name, "--", "sh", "-c", killsItsParent)
	require.NotZero(t, status, "%s", out)
	require.FileExists(t, filepath.Join(r.dir, "started"))
	r.requireNothingLeft()
}

package exercises

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/guard"
	naiveloop "example.com/controllers/naive-loop"
	"example.com/controllers/naive-loop/exercises/conformance"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

func TestREADME(t *testing.T) {
	t.Parallel()
	clustertest.PlayLesson(t, "..")
}

func TestConformance(t *testing.T) {
	t.Parallel()
	files := conformance.Files{Manifests: "../manifests", Frontend: "../frontend.yaml"}
	conformance.Run(t, files, func(ctx context.Context, config *rest.Config, namespace string) {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Error(err)
			return
		}
		controller := naiveloop.Controller{Client: client, Namespace: namespace, NodeName: "node-0", Interval: 100 * time.Millisecond}
		controller.Run(ctx)
	})
}

// The account may do what the controller does, and nothing more.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	env := clustertest.New(t)
	env.Install("../manifests")
	account := "--as=system:serviceaccount:" + env.Namespace + ":naive-loop"
	for _, may := range [][]string{
		{"list", "pods"}, {"delete", "pods"}, {"get", "configmaps/frontend-config"},
		{"get", "nodes"}, {"list", "nodes"},
	} {
		require.Regexp(t, `(?m)^yes$`, env.Kubectl(append([]string{"auth", "can-i", account}, may...)...), "%v", may)
	}
	for _, mayNot := range [][]string{
		{"get", "configmaps/another"}, {"list", "configmaps"}, {"update", "configmaps/frontend-config"},
		{"create", "pods"}, {"deletecollection", "pods"}, {"get", "secrets"}, {"update", "nodes"},
		{"delete", "pods", "--namespace=kube-system"}, {"delete", "deployments"},
	} {
		out, err := env.TryKubectl(append([]string{"auth", "can-i", account}, mayNot...)...)
		require.Error(t, err, "%v: %s", mayNot, out)
		require.Regexp(t, `(?m)^no`, out, "%v", mayNot)
	}
}

func TestProgram(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "naive-loop")
	build := exec.Command("go", "build", "-o", program, "./cmd/naive-loop")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(broken, []byte("clusters: 7"), 0o600))
	unreachable := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, cluster.WriteKubeconfig(unreachable, &rest.Config{Host: "https://127.0.0.1:1"}, ""))

	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no namespace":      {nil, "--namespace is missing; name the namespace whose Pods may be deleted"},
		"an argument":       {[]string{"--namespace=x", "y"}, `unexpected argument "y"`},
		"no pause":          {[]string{"--namespace=x", "--interval=0s"}, "--interval is 0s; it must be more than 0"},
		"no kubeconfig":     {[]string{"--namespace=x"}, "not in a Pod, and no --kubeconfig or KUBECONFIG"},
		"a missing file":    {[]string{"--namespace=x", "--kubeconfig=/nowhere"}, "read kubeconfig /nowhere"},
		"a broken file":     {[]string{"--namespace=x", "--kubeconfig=" + broken}, "read kubeconfig " + broken},
		"no cluster":        {[]string{"--namespace=x", "--kubeconfig=" + unreachable}, "the API server at https://127.0.0.1:1 does not answer"},
		"a flag of another": {[]string{"--workers=3"}, "flag provided but not defined: -workers"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program, test.args...)
			cmd.Env = []string{"HOME=" + t.TempDir()}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			require.Error(t, cmd.Run())
			require.NotZero(t, cmd.ProcessState.ExitCode())
			require.Contains(t, stderr.String(), test.want)
		})
	}
	t.Run("ends with status 0 on SIGTERM", func(t *testing.T) {
		env := clustertest.New(t)
		cmd := exec.Command(program, "--namespace", env.Namespace, "--kubeconfig", env.Cluster.Kubeconfig, "--interval=1h")
		log, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		var seen bytes.Buffer
		for buffer := make([]byte, 4096); !bytes.Contains(seen.Bytes(), []byte("The cluster")); {
			n, err := log.Read(buffer)
			require.NoError(t, err, "%s", seen.String())
			seen.Write(buffer[:n])
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	})
}

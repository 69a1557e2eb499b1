package conformance_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/cluster"
)

// kubectl runs the kubectl that was built with the control plane, in the test's namespace and with input as its standard
// input. It returns the standard output and standard error.
func (e *testEnv) kubectl(t *testing.T, input string, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(e.cluster.Kubectl, "kubectl"), append([]string{"--namespace", e.namespace}, args...)...)
	cmd.Env = append(os.Environ(), e.cluster.Env(t.TempDir())...)
	cmd.Stdin = strings.NewReader(input)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func TestKubectlIsFirstOnThePath(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "command -v kubectl && kubectl version --output=json")
	cmd.Env = append(os.Environ(), e.cluster.Env(t.TempDir())...)
	output, err := cmd.Output()
	require.NoError(t, err)
	path, versions, _ := strings.Cut(string(output), "\n")
	require.Equal(t, filepath.Join(e.cluster.Kubectl, "kubectl"), path)
	var version struct{ ClientVersion, ServerVersion struct{ GitVersion string } }
	require.NoError(t, json.Unmarshal([]byte(versions), &version))
	require.Equal(t, cluster.KubernetesVersion, version.ClientVersion.GitVersion)
	require.Equal(t, cluster.KubernetesVersion, version.ServerVersion.GitVersion)
}

const webManifest = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        image: simulated:1
`

func TestKubectlAppliesAndWaitsForARollout(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	apply := func(manifest, expected string) {
		t.Helper()
		output, err := e.kubectl(t, manifest, "apply", "--filename=-")
		require.NoError(t, err, output)
		require.Equal(t, expected, strings.TrimSpace(output))
	}
	rollOut := func() {
		t.Helper()
		output, err := e.kubectl(t, "", "rollout", "status", "deployment/web", "--timeout=2m")
		require.NoError(t, err, output)
		require.Contains(t, output, `deployment "web" successfully rolled out`)
	}
	apply(webManifest, "deployment.apps/web created")
	rollOut()
	apply(webManifest, "deployment.apps/web unchanged")
	apply(strings.ReplaceAll(webManifest, "simulated:1", "simulated:2"), "deployment.apps/web configured")
	rollOut()
	web, err := e.client.AppsV1().Deployments(e.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "simulated:2", web.Spec.Template.Spec.Containers[0].Image)
	require.EqualValues(t, 2, web.Status.UpdatedReplicas)
	require.Contains(t, web.Annotations, corev1.LastAppliedConfigAnnotation)
}

func TestKubectlReportsTheRightsOfAServiceAccount(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	config, err := e.cluster.ServiceAccountConfig(t.Context(), e.namespace, "default")
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, cluster.WriteKubeconfig(kubeconfig, config, e.namespace))
	file, err := os.Stat(kubeconfig)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), file.Mode())

	output, err := e.kubectl(t, "", "auth", "can-i", "list", "pods")
	require.NoError(t, err, output)
	require.Equal(t, "yes\n", output)
	for _, args := range [][]string{
		{"--kubeconfig", kubeconfig},
		{"--as", "system:serviceaccount:" + e.namespace + ":default"},
	} {
		output, err = e.kubectl(t, "", append(args, "auth", "can-i", "list", "pods")...)
		require.Error(t, err)
		require.Equal(t, "no\n", output)
	}
	output, err = e.kubectl(t, "", "--kubeconfig", kubeconfig, "get", "pods")
	require.Error(t, err)
	require.Contains(t, output, "Error from server (Forbidden): pods is forbidden")
}

func TestKubectlDrainRespectsDisruptionBudgets(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	name := e.addMachine(t)
	e.deploy(t, 2, e.ownPodSpec())
	e.createDisruptionBudget(t, 2, 0)
	output, err := e.kubectl(t, "", "drain", name, "--timeout=1s")
	require.Error(t, err)
	require.Contains(t, output, "Cannot evict pod as it would violate the pod's disruption budget.")
	require.Contains(t, output, "global timeout reached: 1s")

	node, err := e.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, node.Spec.Unschedulable)
	pods, err := e.livePods(t.Context(), webSelector)
	require.NoError(t, err)
	require.Len(t, pods, 2)
}

func TestKubectlDrainMovesPods(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	drained := e.addMachine(t)
	e.deploy(t, 2, e.ownPodSpec())
	e.createDisruptionBudget(t, 1, 1)
	other := e.addMachine(t)
	output, err := e.kubectl(t, "", "drain", drained, "--timeout=2m")
	require.NoError(t, err, output)
	require.Contains(t, output, "node/"+drained+" drained")

	for _, pod := range e.waitForLivePods(t, 2) {
		require.Equal(t, other, pod.Spec.NodeName)
	}
}

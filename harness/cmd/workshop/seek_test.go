package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
)

// seeker is the first argument of this test binary when it is to be a controller that looks for a cluster in all
// the ways that client-go knows.
const seeker = "seek-a-cluster"

// seek makes a ConfigMap in each cluster that it finds, named after the way in which it was found, and waits to be
// killed.
func seek(kubeconfig string) {
	file := func(path string) func() (*rest.Config, error) {
		return func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", path) }
	}
	for way, find := range map[string]func() (*rest.Config, error){
		"flag": file(kubeconfig),
		os.Getenv("SEEK_AS"): func() (*rest.Config, error) { // a variable that the scenario names
			if os.Getenv("SEEK_AS") == "" {
				return nil, errors.New("SEEK_AS is not set")
			}
			return clientcmd.BuildConfigFromFlags("", kubeconfig)
		},
		"in-cluster": rest.InClusterConfig,
		"home":       file(filepath.Join(homedir.HomeDir(), ".kube", "config")),
		"variable":   file(os.Getenv("KUBECONFIG")),
		"host": func() (*rest.Config, error) { // as in-cluster, without the files that are there in a Pod
			host := os.Getenv("KUBERNETES_SERVICE_HOST")
			if host == "" {
				return nil, rest.ErrNotInCluster
			}
			return &rest.Config{Host: "https://" + host + ":" + os.Getenv("KUBERNETES_SERVICE_PORT"), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, nil
		},
		"rules": func() (*rest.Config, error) {
			return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
		},
	} {
		config, err := find()
		if err == nil {
			_, err = kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(os.Args[3]).Create(context.Background(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: way}}, metav1.CreateOptions{})
		}
		fmt.Println(way, err)
	}
	select {}
}

// awaitLines reads so many lines.
func awaitLines(t *testing.T, from io.Reader, count int) []string {
	t.Helper()
	var lines []string
	for scanner := bufio.NewScanner(from); len(lines) < count; lines = append(lines, scanner.Text()) {
		require.True(t, scanner.Scan(), "it ended after %q", lines)
	}
	return lines
}

// serviceAccountFiles is where client-go looks for a Pod's token and certificate.
const serviceAccountFiles = "/var/run/secrets/kubernetes.io/serviceaccount"

// asInPod makes the commands find the files of a Pod's service account, in a mount namespace of their own. It reports
// whether it could: only on Linux, and not in every container.
func asInPod(t *testing.T, config *rest.Config, commands ...*exec.Cmd) bool {
	t.Helper()
	const script = `set -e; mount -t tmpfs tmpfs /var/run; mkdir -p "$1"; cp "$0"/* "$1"; shift; exec "$@"`
	files := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(files, "token"), []byte(config.BearerToken), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(files, "ca.crt"), config.CAData, 0o600))
	inPod := []string{"unshare", "--mount", "--map-root-user", "sh", "-c", script, files, serviceAccountFiles}
	if out, err := exec.CommandContext(t.Context(), inPod[0], append(inPod[1:], "true")...).CombinedOutput(); err != nil {
		t.Logf("without the files of a Pod: no mount namespace: %v: %s", err, out)
		return false
	}
	path, err := exec.LookPath(inPod[0])
	require.NoError(t, err)
	for _, cmd := range commands {
		cmd.Args = append(slices.Clone(inPod), append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = path
	}
	return true
}

const seekClusters = `
resources: [configmaps]
env: [SEEK_AS]
steps: []
converged:
- rule: '["flag", "named", "rules", "variable"].all(way, configmaps.exists(c, c.metadata.name == way))'
stopsWith: -1
`

// A controller that looks for a cluster by itself finds no other than the one that it is tortured on.
func TestTortureKeepsToItsCluster(t *testing.T) {
	r := newRepository(t, "$ true")
	production, err := cluster.Start(t.Context(), cluster.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, production.Stop()) }()
	upstream, err := production.Config()
	require.NoError(t, err)
	proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: upstream})
	require.NoError(t, err)
	defer func() { require.NoError(t, proxy.Stop()) }()

	home := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(home, ".kube"), 0o700))
	for _, path := range []string{filepath.Join(home, "kubeconfig"), filepath.Join(home, ".kube", "config")} {
		require.NoError(t, cluster.WriteKubeconfig(path, proxy.Config(), metav1.NamespaceDefault))
	}
	at, err := url.Parse(proxy.URL())
	require.NoError(t, err)
	r.write("seek.yaml", seekClusters)
	cmd := r.command("torture", "--scenario", "seek.yaml", "--fault", "verb=create,delay=1ms", "--", os.Args[0], seeker, "{kubeconfig}", "{namespace}")
	cmd.Env = append(cmd.Env, "HOME="+home, "KUBECONFIG="+filepath.Join(home, "kubeconfig"), "SEEK_AS=named",
		"KUBERNETES_SERVICE_HOST="+at.Hostname(), "KUBERNETES_SERVICE_PORT="+at.Port())
	alone := r.command(seeker, filepath.Join(home, "kubeconfig"), metav1.NamespaceDefault)
	alone.Env = cmd.Env
	ways := []string{"flag", "home", "rules", "variable"}
	if asInPod(t, proxy.Config(), cmd, alone) {
		ways = append(ways, "in-cluster")
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "1 plan, 0 failed; ")
	require.Zero(t, proxy.Arrived(), "it has found the other cluster")

	// It would have been found.
	said, err := alone.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, alone.Start())
	defer func() {
		require.NoError(t, alone.Process.Kill())
		require.Error(t, alone.Wait())
	}()
	found := awaitLines(t, said, 7)
	for _, way := range ways {
		require.Contains(t, found, way+" <nil>")
	}
	require.Contains(t, strings.Join(found, "\n"), "host configmaps is forbidden", "it has got an answer")
}

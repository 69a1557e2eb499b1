package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests start the test binary as the program, so that they see its exit status.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program returns a command that runs the program in an environment that looks like that of a Pod without a ServiceAccount.
func program(t *testing.T, env []string, args ...string) (cmd *exec.Cmd, log *bytes.Buffer) {
	log = &bytes.Buffer{}
	cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{"RUN_MAIN=yes", "HOME=" + t.TempDir(), "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=1"}, env...)
	cmd.Stderr = log
	return cmd, log
}

// kubeconfigText is a kubeconfig, with the address of the API server missing.
const kubeconfigText = `{apiVersion: v1, kind: Config, current-context: test, contexts: [{name: test, context: {cluster: test}}],
	clusters: [{name: test, cluster: {server: "%s"}}]}`

// apiServer starts an API server that has no objects, and returns the path of a kubeconfig for it.
func apiServer(t *testing.T, version string, onList func()) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" && version != "" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"gitVersion":%q}`, version)
			return
		}
		if onList != nil && r.URL.Path == "/api/v1/nodes" {
			onList()
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, kubeconfigText, server.URL), 0o600))
	return path
}

func TestStopsWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, kubeconfigText, server.URL), 0o600))
	cmd, log := program(t, nil, "--namespace=shop", "--kubeconfig="+kubeconfig)
	require.NoError(t, cmd.Start())
	<-asked
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), log.String())
	require.NotContains(t, log.String(), "Starting")
}

func TestWhichKubeconfigIsUsed(t *testing.T) {
	for name, test := range map[string]struct {
		env, args func(byFlag, byVariable string) []string
		want      string
	}{
		"flag":              {nil, func(byFlag, _ string) []string { return []string{"--kubeconfig=" + byFlag} }, "v-flag"},
		"variable":          {func(_, byVariable string) []string { return []string{"KUBECONFIG=" + byVariable} }, nil, "v-variable"},
		"flag and variable": {func(_, byVariable string) []string { return []string{"KUBECONFIG=" + byVariable} }, func(byFlag, _ string) []string { return []string{"--kubeconfig=" + byFlag} }, "v-flag"},
	} {
		t.Run(name, func(t *testing.T) {
			listed := make(chan struct{}, 100)
			onList := func() { listed <- struct{}{} }
			byFlag, byVariable := apiServer(t, "v-flag", onList), apiServer(t, "v-variable", onList)
			var env []string
			args := []string{"--namespace=shop"}
			if test.env != nil {
				env = test.env(byFlag, byVariable)
			}
			if test.args != nil {
				args = append(args, test.args(byFlag, byVariable)...)
			}
			cmd, log := program(t, env, args...)
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-listed: // the loop is running
				require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				require.NoError(t, <-ended, "%s", log)
			case err := <-ended:
				require.NoError(t, err, "%s", log)
			}
			require.Contains(t, log.String(), fmt.Sprintf(`"Starting" namespace="shop" interval="5s" server=%q`, test.want))
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no namespace":      {nil, "naive-loop: --namespace is required: the namespace whose Pods may be deleted\n"},
		"an argument":       {[]string{"--namespace=x", "y"}, "naive-loop: unexpected argument \"y\"\n"},
		"no interval":       {[]string{"--namespace=x", "--interval=0s"}, "naive-loop: --interval is 0s; it must be more than 0\n"},
		"negative interval": {[]string{"--namespace=x", "--interval=-1s"}, "naive-loop: --interval is -1s; it must be more than 0\n"},
		"no kubeconfig":     {[]string{"--namespace=x"}, "naive-loop: not in a Pod, and no --kubeconfig or KUBECONFIG: "},
		"missing file":      {[]string{"--namespace=x", "--kubeconfig=/nowhere/kubeconfig"}, "naive-loop: read kubeconfig /nowhere/kubeconfig: "},
		"no API server":     {[]string{"--namespace=x", "--kubeconfig=" + apiServer(t, "", nil)}, "does not answer; is the address right, and is the server running? "},
		"no TLS file":       {[]string{"--namespace=x", "--kubeconfig=" + kubeconfigWithoutCA(t)}, "naive-loop: unable to load root certificates: "},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, log := program(t, nil, test.args...)
			var exit *exec.ExitError
			require.ErrorAs(t, cmd.Run(), &exit)
			require.Equal(t, 1, exit.ExitCode(), "%s", log)
			require.Contains(t, log.String(), test.want)
		})
	}
}

// kubeconfigWithoutCA returns the path of a kubeconfig from which no client can be made.
func kubeconfigWithoutCA(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: test, contexts: [{name: test, context: {cluster: test}}],
		clusters: [{name: test, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: bm9uZQ==}}]}`
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

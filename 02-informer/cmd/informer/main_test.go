package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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

// apiServer is an API server without Pods and ConfigMaps.
type apiServer struct {
	kubeconfig string        // path
	namespaces chan struct{} // gets a value for each request for the namespace
	status     int           // code of the responses to requests for the namespace; with 0, these get none
	pods       chan struct{} // gets a value for each request for Pods
}

func newAPIServer(t *testing.T, status int) *apiServer {
	s := &apiServer{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), namespaces: make(chan struct{}, 100), status: status, pods: make(chan struct{}, 100)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	writeKubeconfig(t, s.kubeconfig, server.URL, "")
	return s
}

func writeKubeconfig(t *testing.T, path, server, more string) {
	text := `{apiVersion: v1, kind: Config, current-context: test, contexts: [{name: test, context: {cluster: test}}],
		clusters: [{name: test, cluster: {server: "%s"%s}}]}`
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, text, server, more), 0o600))
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path.Base(r.URL.Path) {
	case "shop":
		s.namespaces <- struct{}{}
		switch s.status {
		case 0:
			<-r.Context().Done()
		case http.StatusOK:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
		default:
			http.Error(w, http.StatusText(s.status), s.status)
		}
	case "pods":
		s.pods <- struct{}{}
		http.NotFound(w, r)
	default:
		http.NotFound(w, r)
	}
}

// stopAt starts the program, sends it SIGTERM when it has made a request, and requires exit status 0.
func stopAt(t *testing.T, cmd *exec.Cmd, log *bytes.Buffer, request <-chan struct{}) {
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-request:
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, <-ended, "%s", log)
	case err := <-ended:
		require.Fail(t, "The program ended before it made the request", "%v\n%s", err, log)
	}
}

func TestWhichKubeconfigIsUsed(t *testing.T) {
	for name, test := range map[string]struct {
		flag, variable bool
	}{
		"flag":              {flag: true},
		"variable":          {variable: true},
		"flag and variable": {flag: true, variable: true},
	} {
		t.Run(name, func(t *testing.T) {
			// Servers of its own: a request of a program that has ended may arrive late.
			byFlag, byVariable := newAPIServer(t, http.StatusOK), newAPIServer(t, http.StatusOK)
			want, args, env := byVariable, []string{"--namespace=shop"}, []string(nil)
			if test.variable {
				env = append(env, "KUBECONFIG="+byVariable.kubeconfig)
			}
			if test.flag {
				want, args = byFlag, append(args, "--kubeconfig="+byFlag.kubeconfig)
			}
			cmd, log := program(t, env, args...)
			stopAt(t, cmd, log, want.pods)
			require.Contains(t, log.String(), `"Starting" namespace="shop" resync="0s"`)
		})
	}
}

func TestStopsWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	server := newAPIServer(t, 0)
	cmd, log := program(t, nil, "--namespace=shop", "--kubeconfig="+server.kubeconfig)
	stopAt(t, cmd, log, server.namespaces)
	require.NotContains(t, log.String(), "Starting")
}

// silent is a transport on which nothing is answered.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestDoesNotWaitForeverForAnAPIServerThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://silent"}, &http.Client{Transport: silent{}})
		require.NoError(t, err)
		begin := time.Now()
		err = checkNamespace(t.Context(), client, "http://silent", "shop")
		require.ErrorContains(t, err, "the API server at http://silent does not answer")
		require.Equal(t, 30*time.Second, time.Since(begin), "virtual time")
	})
}

func TestRefusals(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	noServer, noClient := filepath.Join(t.TempDir(), "kubeconfig"), filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, noServer, closed.URL, "")
	writeKubeconfig(t, noClient, "https://127.0.0.1:1", ", certificate-authority-data: bm9uZQ==")
	answers := func(status int) string { return "--kubeconfig=" + newAPIServer(t, status).kubeconfig }
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no namespace":      {nil, "informer: --namespace is required: the namespace whose Pods may be deleted\n"},
		"an argument":       {[]string{"--namespace=shop", "y"}, "informer: unexpected argument \"y\"\n"},
		"negative resync":   {[]string{"--namespace=shop", "--resync=-1s"}, "informer: --resync is -1s; it must not be negative\n"},
		"no kubeconfig":     {[]string{"--namespace=shop"}, "informer: not in a Pod, and no --kubeconfig or KUBECONFIG: "},
		"missing file":      {[]string{"--namespace=shop", "--kubeconfig=/nowhere/kubeconfig"}, "informer: read kubeconfig /nowhere/kubeconfig: "},
		"no client":         {[]string{"--namespace=shop", "--kubeconfig=" + noClient}, "informer: unable to load root certificates: "},
		"no API server":     {[]string{"--namespace=shop", "--kubeconfig=" + noServer}, "does not answer; is the address right, and is the server running? "},
		"no such namespace": {[]string{"--namespace=shop", answers(http.StatusNotFound)}, `informer: there is no namespace "shop" on http://127.0.0.1:`},
		"no permission":     {[]string{"--namespace=shop", answers(http.StatusForbidden)}, `informer: no permission to get namespace "shop"; does it exist, `},
		"unauthorized":      {[]string{"--namespace=shop", answers(http.StatusUnauthorized)}, `informer: get namespace "shop" on http://127.0.0.1:`},
		"no duration":       {[]string{"--namespace=shop", "--resync=soon"}, `invalid value "soon" for flag -resync`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, log := program(t, nil, test.args...)
			var exit *exec.ExitError
			require.ErrorAs(t, cmd.Run(), &exit)
			require.NotZero(t, exit.ExitCode())
			require.Contains(t, log.String(), test.want)
		})
	}
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The tests start the test binary as the program, so that they can send it signals and see its exit status.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is a running process of the program.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // of standard error; closed when the process ends
	log   []string    // the lines received so far
}

// start starts the program in an environment that looks like that of a Pod. It is killed if it still runs after five minutes.
func start(t *testing.T, env []string, args ...string) *program {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	p := &program{t: t, cmd: exec.CommandContext(ctx, os.Args[0], append([]string{"--namespace=shop", "--address=127.0.0.1:0"}, args...)...), lines: make(chan string)}
	p.cmd.Env = append([]string{
		"RUN_MAIN=yes", "HOME=" + t.TempDir(), "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=1",
		"KUBE_FEATURE_WatchListClient=false", // apiServer answers lists and watches
	}, env...)
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range p.lines {
		}
		_ = p.cmd.Wait() // fails if the test has already waited
	})
	return p
}

// await waits until the program writes a line that contains the text, and returns the line.
func (p *program) await(text string) string {
	p.t.Helper()
	for line := range p.lines {
		p.log = append(p.log, line)
		if strings.Contains(line, text) {
			return line
		}
	}
	require.Fail(p.t, "The program ended or hung before it wrote the line", "%q is not in:\n%s", text, strings.Join(p.log, "\n"))
	return ""
}

// status waits until the program ends and returns its exit status.
func (p *program) status() int {
	for line := range p.lines {
		p.log = append(p.log, line)
	}
	_ = p.cmd.Wait() // its error is the exit status
	return p.cmd.ProcessState.ExitCode()
}

// address waits until the program serves HTTP, and returns its host and port.
func (p *program) address() string {
	_, rest, _ := strings.Cut(p.await("Starting"), `metrics="http://`)
	address, _, _ := strings.Cut(rest, "/metrics")
	return address
}

// awaitShutdown waits until the program at a URL is no longer ready, or has ended.
func awaitShutdown(url string) {
	for {
		response, err := http.Get(url + "/readyz")
		if err != nil {
			return
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusServiceUnavailable {
			return
		}
	}
}

// get returns the status code and body of the program's response.
func (p *program) get(url string) (int, string) {
	p.t.Helper()
	response, err := http.Get(url)
	require.NoError(p.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(body)
}

// apiServer is an API server in whose namespace "shop" nothing exists, or a Pod that is older than its config.
type apiServer struct {
	kubeconfig string        // path
	namespaces chan struct{} // gets a value for each request for the namespace
	status     int           // code of the responses to requests for the namespace; with 0, these get none
	lists      chan struct{} // lists get no response until it is closed
	stale      bool          // whether there is a Pod that is older than its config
	deletions  chan struct{} // gets a value for each request to delete the Pod
	deleted    chan struct{} // these get no response until it is closed
}

// The only objects in the lists of Pods and of ConfigMaps.
const (
	pod = `{"metadata":{"namespace":"shop","name":"frontend-1","uid":"1","resourceVersion":"1","creationTimestamp":"2026-01-01T12:00:00Z",
		"labels":{"app":"frontend"}}}`
	config = `{"metadata":{"namespace":"shop","name":"frontend-config","resourceVersion":"1","creationTimestamp":"2026-01-01T12:01:00Z"}}`
)

func newAPIServer(t *testing.T, status int) *apiServer {
	s := &apiServer{
		kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), namespaces: make(chan struct{}, 10), status: status, lists: make(chan struct{}),
		deletions: make(chan struct{}, 10), deleted: make(chan struct{}),
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	text := `{apiVersion: v1, kind: Config, current-context: test, contexts: [{name: test, context: {cluster: test}}],
		clusters: [{name: test, cluster: {server: "%s"}}]}`
	require.NoError(t, os.WriteFile(s.kubeconfig, fmt.Appendf(nil, text, server.URL), 0o600))
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	kind := map[string]string{"pods": "PodList", "configmaps": "ConfigMapList"}[filepath.Base(r.URL.Path)]
	switch {
	case r.Method == http.MethodDelete:
		_, _ = io.Copy(io.Discard, r.Body) // only then does a server notice that the client has disconnected
		s.deletions <- struct{}{}
		select {
		case <-s.deleted:
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"2"}}`)
		case <-r.Context().Done():
		}
	case kind == "":
		s.namespaces <- struct{}{}
		switch s.status {
		case 0:
			<-r.Context().Done()
		case http.StatusOK:
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
		default:
			http.Error(w, http.StatusText(s.status), s.status)
		}
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		select {
		case <-s.lists:
			item := ""
			if s.stale {
				item = map[string]string{"PodList": pod, "ConfigMapList": config}[kind]
			}
			fmt.Fprintf(w, `{"apiVersion":"v1","kind":"%s","metadata":{"resourceVersion":"1"},"items":[%s]}`, kind, item)
		case <-r.Context().Done():
		}
	}
}

func TestWhichKubeconfigIsUsed(t *testing.T) {
	byFlag, byVariable := newAPIServer(t, 0), newAPIServer(t, 0)
	flag, variable := "--kubeconfig="+byFlag.kubeconfig, "KUBECONFIG="+byVariable.kubeconfig
	tests := map[string]struct {
		env, args []string
		want      *apiServer
	}{
		"flag":              {nil, []string{flag}, byFlag},
		"variable":          {[]string{variable}, nil, byVariable},
		"flag and variable": {[]string{variable}, []string{flag}, byFlag},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := start(t, test.env, test.args...)
			select {
			case <-byFlag.namespaces:
				require.Same(t, byFlag, test.want)
			case <-byVariable.namespaces:
				require.Same(t, byVariable, test.want)
			case line := <-p.lines:
				require.Fail(t, "no request", line)
			}
		})
	}
	t.Run("a file that does not exist", func(t *testing.T) {
		p := start(t, []string{"KUBECONFIG=/nowhere"})
		p.await("read kubeconfig /nowhere")
		require.Equal(t, 1, p.status())
	})
	t.Run("none", func(t *testing.T) {
		p := start(t, nil)
		p.await("/var/run/secrets/kubernetes.io/serviceaccount/token")
		require.Equal(t, 1, p.status())
	})
}

func TestDoesNotStartWithoutItsNamespace(t *testing.T) {
	tests := map[int]string{
		http.StatusNotFound:            `namespace "shop" does not exist`,
		http.StatusForbidden:           `not allowed to get namespace "shop"`,
		http.StatusUnauthorized:        `get namespace "shop" from http://`,
		http.StatusInternalServerError: `get namespace "shop" from http://`,
	}
	for status, want := range tests {
		t.Run(http.StatusText(status), func(t *testing.T) {
			p := start(t, nil, "--kubeconfig="+newAPIServer(t, status).kubeconfig)
			p.await(want)
			require.Equal(t, 1, p.status())
		})
	}
}

func TestIsAliveButNotReadyWhileListsHang(t *testing.T) {
	server := newAPIServer(t, http.StatusOK)
	p := start(t, nil, "--kubeconfig="+server.kubeconfig)
	url := "http://" + p.address()
	get := func(path string) int {
		status, _ := p.get(url + path)
		return status
	}
	require.Equal(t, http.StatusOK, get("/healthz"), "or the kubelet would restart it")
	require.Equal(t, http.StatusServiceUnavailable, get("/readyz"))
	close(server.lists)
	p.await("Caches synced")
	require.Equal(t, http.StatusOK, get("/healthz"))
	require.Equal(t, http.StatusOK, get("/readyz"))
	_, metrics := p.get(url + "/metrics")
	require.Contains(t, metrics, `workqueue_depth{name="pods"`)
	require.Contains(t, metrics, "rest_client_requests_total")
}

func TestStopsOnSignals(t *testing.T) {
	tests := map[string]struct {
		status int // of the API server
		when   func(*apiServer, *program)
	}{
		"before the API server's first response": {0, func(s *apiServer, _ *program) { <-s.namespaces }},
		"while lists hang":                       {http.StatusOK, func(_ *apiServer, p *program) { p.await("Starting") }},
		"caches synced": {http.StatusOK, func(s *apiServer, p *program) {
			close(s.lists)
			p.await("Caches synced")
		}},
		"while a client is connected": {http.StatusOK, func(s *apiServer, p *program) {
			close(s.lists)
			address := p.address()
			p.await("Caches synced")
			client, err := net.Dial("tcp", address)
			require.NoError(p.t, err)
			p.t.Cleanup(func() { _ = client.Close() })
			// The program waits for the body of the second request, which never comes.
			_, err = io.WriteString(client, "GET /readyz HTTP/1.1\r\nHost: test\r\n\r\nPOST /readyz HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n")
			require.NoError(p.t, err)
			_, err = http.ReadResponse(bufio.NewReader(client), nil)
			require.NoError(p.t, err)
		}},
	}
	for name, test := range tests {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			t.Run(fmt.Sprintf("%s, %s", name, signal), func(t *testing.T) {
				server := newAPIServer(t, test.status)
				p := start(t, nil, "--kubeconfig="+server.kubeconfig)
				test.when(server, p)
				require.NoError(t, p.cmd.Process.Signal(signal))
				require.Zero(t, p.status(), "exit status; the log is:\n%s", strings.Join(p.log, "\n"))
				require.NotContains(t, strings.Join(p.log, "\n"), "workqueue:", "an error")
			})
		}
	}
}

func TestFinishesInFlightRequestsOnSIGTERM(t *testing.T) {
	server := newAPIServer(t, http.StatusOK)
	server.stale = true
	close(server.lists)
	p := start(t, nil, "--kubeconfig="+server.kubeconfig, "--grace=1h")
	url := "http://" + p.address()
	p.await("deleting it")
	<-server.deletions
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	awaitShutdown(url)
	close(server.deleted)
	require.Zero(t, p.status(), "exit status; the log is:\n%s", strings.Join(p.log, "\n"))
	require.NotContains(t, strings.Join(p.log, "\n"), "Reconcile failed")
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
		err = checkNamespace(t.Context(), client, "http://silent", "shop")
		require.ErrorContains(t, err, "the API server at http://silent does not answer")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestDefaults(t *testing.T) {
	p := start(t, nil, "-help")
	require.Zero(t, p.status())
	for _, want := range []string{
		"SIGTERM (default 10s)", "each failure (default 100ms)", "that delay (default 1m0s)", "for never (default 8)", "concurrently (default 2)",
		"free one (default \"127.0.0.1:8080\")",
	} {
		require.Contains(t, strings.Join(p.log, "\n"), want)
	}
}

package main

import (
	"bufio"
	"bytes"
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
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/crd/neutrontest"
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

// awaitRequest waits until one is sent, and returns it.
func awaitRequest[T any](p *program, requests <-chan T) (request T) {
	p.t.Helper()
	for {
		select {
		case request = <-requests:
			return request
		case line, running := <-p.lines:
			require.True(p.t, running, "The program ended:\n%s", strings.Join(p.log, "\n"))
			p.log = append(p.log, line)
		}
	}
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

// apiServer is an API server whose namespace "shop" has one Network.
type apiServer struct {
	kubeconfig string        // path
	namespaces chan struct{} // gets a value for each request for the namespace
	status     int           // code of the responses to requests for the namespace; with 0, these get none
	lists      chan struct{} // lists get no response until it is closed, except the one that the program checks its rights with
	check      atomic.Int64  // code of the response to that one; 0 for a list
}

const network = `{"apiVersion":"samplecrd.k8s.io/v1","kind":"Network","metadata":{"namespace":"shop","name":"front","uid":"uid-of-front",
	"resourceVersion":"1","generation":1,"finalizers":["samplecrd.k8s.io/network"]},"spec":{"cidr":"10.0.0.0/24","gateway":"10.0.0.1"}}`

func newAPIServer(t *testing.T, status int) *apiServer {
	s := &apiServer{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), namespaces: make(chan struct{}, 10), status: status, lists: make(chan struct{})}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	text := `{apiVersion: v1, kind: Config, current-context: test, contexts: [{name: test, context: {cluster: test}}],
		clusters: [{name: test, cluster: {server: "%s"}}]}`
	require.NoError(t, os.WriteFile(s.kubeconfig, fmt.Appendf(nil, text, server.URL), 0o600))
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	isList := strings.HasSuffix(r.URL.Path, "/namespaces/shop/networks")
	switch {
	case strings.HasSuffix(r.URL.Path, "/api/v1/namespaces/shop"):
		s.namespaces <- struct{}{}
		switch s.status {
		case 0:
			<-r.Context().Done()
		case http.StatusOK:
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","uid":"uid-of-shop"}}`)
		default:
			http.Error(w, http.StatusText(s.status), s.status)
		}
	case isList && r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case isList && r.URL.Query().Get("limit") == "1" && s.check.Load() != 0:
		status := int(s.check.Load())
		http.Error(w, http.StatusText(status), status)
	case isList:
		if r.URL.Query().Get("limit") != "1" {
			select {
			case <-s.lists:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprintf(w, `{"apiVersion":"samplecrd.k8s.io/v1","kind":"NetworkList","metadata":{"resourceVersion":"1"},"items":[%s]}`, network)
	default:
		fmt.Fprint(w, network) // for a write of its status
	}
}

// newCloud returns the environment variables for a Neutron.
func newCloud(t *testing.T, handler http.Handler) []string {
	cloud := httptest.NewServer(handler)
	t.Cleanup(cloud.Close)
	return []string{"NEUTRON_URL=" + cloud.URL, "NEUTRON_PROJECT=test"}
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
		http.StatusNotFound:            `there is no namespace "shop"`,
		http.StatusForbidden:           `not allowed to read Networks in namespace "shop"`,
		http.StatusUnauthorized:        `list Networks in namespace "shop" on http://`,
		http.StatusInternalServerError: `list Networks in namespace "shop" on http://`,
	}
	for status, want := range tests {
		t.Run(http.StatusText(status), func(t *testing.T) {
			p := start(t, newCloud(t, &neutrontest.Server{}), "--kubeconfig="+newAPIServer(t, status).kubeconfig)
			p.await(want)
			require.Equal(t, 1, p.status())
		})
	}
}

func TestDoesNotStartUnlessItMayListNetworks(t *testing.T) {
	tests := map[int]string{
		http.StatusNotFound:  "has no resource networks.samplecrd.k8s.io; apply manifests/samplecrd.k8s.io_networks.yaml first",
		http.StatusForbidden: `not allowed to read Networks in namespace "shop"`,
	}
	for status, want := range tests {
		t.Run(http.StatusText(status), func(t *testing.T) {
			server := newAPIServer(t, http.StatusOK)
			server.check.Store(int64(status))
			p := start(t, newCloud(t, &neutrontest.Server{}), "--kubeconfig="+server.kubeconfig)
			p.await(want)
			require.Equal(t, 1, p.status())
		})
	}
	t.Run("unless that may be temporary", func(t *testing.T) {
		server := newAPIServer(t, http.StatusOK)
		server.check.Store(http.StatusInternalServerError)
		close(server.lists)
		p := start(t, newCloud(t, &neutrontest.Server{}), "--kubeconfig="+server.kubeconfig)
		p.await("Cannot list Networks now, starting anyway")
		p.await("Caches synced")
	})
}

func TestIsAliveButNotReadyWhileListsHang(t *testing.T) {
	server := newAPIServer(t, http.StatusOK)
	p := start(t, newCloud(t, &neutrontest.Server{}), "--kubeconfig="+server.kubeconfig)
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
	require.Contains(t, metrics, `workqueue_depth{name="networks"`)
	require.Contains(t, metrics, "rest_client_requests_total")
	require.NotContains(t, metrics, "rest_client_rate_limiter_duration_seconds_count", "client-go's rate limiter must be off; the number of workers limits the load")
}

func TestStopsOnSignals(t *testing.T) {
	tests := map[string]struct {
		status int // of the API server
		when   func(*apiServer, *program)
	}{
		"before the API server's first response": {0, func(s *apiServer, p *program) { awaitRequest(p, s.namespaces) }},
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
				p := start(t, newCloud(t, &neutrontest.Server{}), "--kubeconfig="+server.kubeconfig)
				test.when(server, p)
				require.NoError(t, p.cmd.Process.Signal(signal))
				require.Zero(t, p.status(), "exit status; the log is:\n%s", strings.Join(p.log, "\n"))
				require.NotContains(t, strings.Join(p.log, "\n"), "network-controller:", "an error")
			})
		}
	}
}

func TestStopsIfTheCloudNeverAnswers(t *testing.T) {
	for name, answered := range map[string]int64{"from the start": 0, "after the program has started": 1} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			hanging := make(chan struct{}, 100)
			cloud := &neutrontest.Server{}
			env := newCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) <= answered {
					cloud.ServeHTTP(w, r)
					return
				}
				hanging <- struct{}{}
				<-r.Context().Done()
			}))
			server := newAPIServer(t, http.StatusOK)
			close(server.lists)
			p := start(t, env, "--kubeconfig="+server.kubeconfig, "--grace=100ms")
			awaitRequest(p, hanging)
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			require.Zero(t, p.status(), "exit status; the log is:\n%s", strings.Join(p.log, "\n"))
		})
	}
}

// The names in the cloud have the UIDs of the namespace and of the Network, so that the networks of two clusters, or of two
// Networks of one name, are never taken for each other.
func TestNamesInTheCloudHaveUIDs(t *testing.T) {
	bodies := make(chan string, 100)
	cloud := &neutrontest.Server{}
	env := newCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				bodies <- string(body)
			}
		}
		cloud.ServeHTTP(w, r)
	}))
	server := newAPIServer(t, http.StatusOK)
	close(server.lists)
	p := start(t, env, "--kubeconfig="+server.kubeconfig)
	require.Contains(t, awaitRequest(p, bodies), `"name":"kubernetes-uid-of-shop-uid-of-front"`)
}

func TestStartsIfTheCloudIsDownButNotIfItRejectsTheCredentials(t *testing.T) {
	server := newAPIServer(t, http.StatusOK)
	respond := func(status int) []string {
		return newCloud(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	}
	start(t, respond(http.StatusServiceUnavailable), "--kubeconfig="+server.kubeconfig).await("Starting")
	start(t, respond(http.StatusTooManyRequests), "--kubeconfig="+server.kubeconfig).await("Starting")
	p := start(t, respond(http.StatusUnauthorized), "--kubeconfig="+server.kubeconfig)
	p.await("network-controller: ")
	require.Equal(t, 1, p.status())
}

// Health is served only after the first request to the cloud, so that request ends before the liveness probe gives up.
func TestStartsIfTheCloudDoesNotAnswer(t *testing.T) {
	t.Parallel() // it takes ten seconds
	env := newCloud(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	server := newAPIServer(t, http.StatusOK)
	close(server.lists)
	p := start(t, env, "--kubeconfig="+server.kubeconfig)
	p.await("Cannot reach the cloud, starting anyway")
	p.await("Starting")
}

func TestFinishesInFlightWorkOnSIGTERM(t *testing.T) {
	creations, created := make(chan struct{}, 10), make(chan struct{})
	cloud := &neutrontest.Server{}
	env := newCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body) // only then does a server notice that the client has disconnected
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			creations <- struct{}{}
			select {
			case <-created:
			case <-r.Context().Done():
				return
			}
		}
		cloud.ServeHTTP(w, r)
	}))
	server := newAPIServer(t, http.StatusOK)
	close(server.lists)
	p := start(t, env, "--kubeconfig="+server.kubeconfig, "--grace=1h")
	url := "http://" + p.address()
	awaitRequest(p, creations)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	awaitShutdown(url)
	close(created)
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
		_, err = checkAPIServer(t.Context(), client, nil, "http://silent", "shop")
		require.ErrorContains(t, err, "the API server at http://silent does not answer")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestDefaults(t *testing.T) {
	p := start(t, nil, "-help")
	require.Zero(t, p.status())
	for _, want := range []string{
		"SIGTERM (default 10s)", "further failure (default 100ms)", "that wait (default 1m0s)", "a fifth (default 5m0s)", "concurrently (default 2)",
	} {
		require.Contains(t, strings.Join(p.log, "\n"), want)
	}
}

// The workers limit the requests, and nothing else does.
func TestClientsAreNotLimited(t *testing.T) {
	kube, client, err := newClients(&rest.Config{Host: "https://127.0.0.1:1"})
	require.NoError(t, err)
	require.Nil(t, kube.CoreV1().RESTClient().GetRateLimiter())
	require.Nil(t, client.SamplecrdV1().RESTClient().GetRateLimiter())
}

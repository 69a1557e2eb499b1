package apiproxy_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// hangs is how long anything may take that is waited for. It is no expectation, only an end.
const hangs = time.Minute

// TestMain keeps test programs with the race detector from a second of sleep at their end.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// world is an API server made for a test, and a proxy of it.
type world struct {
	*apiproxy.Proxy
	t        *testing.T
	upstream *rest.Config // of a user with the token "upstream-secret"
	server   *httptest.Server
	memory   history.Memory
}

// newWorld makes one that leaves no goroutine when the test is over.
func newWorld(t *testing.T, handler http.HandlerFunc, faults ...apiproxy.Fault) *world {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })

	w := &world{t: t, server: httptest.NewUnstartedServer(handler)}
	w.server.EnableHTTP2 = true
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	w.upstream = upstreamConfig(w.server)

	calls := 0 // without a lock: the race detector sees to it that there is only one call at a time
	var err error
	w.Proxy, err = apiproxy.Start(context.Background(), apiproxy.Options{
		Upstream: w.upstream, Faults: faults,
		Record: func(r history.Record) {
			calls++
			w.memory.Record(r)
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Stop()) })
	return w
}

func upstreamConfig(server *httptest.Server) *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, BearerToken: "upstream-secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// client is a client of a configuration that changes nothing by itself.
func client(t *testing.T, config *rest.Config, protocols ...string) *http.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.DisableCompression = true
	config.NextProtos = protocols
	config.Proxy = http.ProxyFromEnvironment
	c, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(c.Transport) })
	return c
}

// do makes a request through the proxy and returns the answer, read to its end.
func (w *world) do(method, path, body string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	return do(w.t, client(w.t, w.Config()), w.URL(), method, path, body, headers...)
}

func do(t *testing.T, c *http.Client, host, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, host+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := c.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	var all bytes.Buffer
	_, err = io.Copy(&all, response.Body)
	require.NoError(t, err)
	return response, all.String()
}

// only returns the one request that was recorded.
func (w *world) only() history.Request {
	w.t.Helper()
	h := w.memory.History()
	require.Len(w.t, h.Requests, 1)
	return h.Requests[0]
}

// eventually waits for something that comes by itself.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, hangs, 2*time.Millisecond, what)
}

package apiproxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

func TestStop(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, added("1"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	response, err := client(t, w.Config()).Get(w.URL() + "/api/v1/pods?watch=true")
	require.NoError(t, err)
	_, err = response.Body.Read(make([]byte, 1))
	require.NoError(t, err)
	require.True(t, w.only().Open)
	require.NoError(t, w.Stop())
	require.NoError(t, w.Stop(), "once more does no harm")
	require.False(t, w.only().Open, "when Stop returns, all has been recorded")
	require.Equal(t, "the proxy was stopped", w.only().Error)
	_, err = io.ReadAll(response.Body)
	require.Error(t, err)
	response.Body.Close()
	_, err = net.Dial("tcp", strings.TrimPrefix(w.URL(), "https://"))
	require.Error(t, err)
}

func TestStopWaitsForTheLastRecord(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	stopping := make(chan struct{})
	var recorded atomic.Bool
	p, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: w.upstream, Record: func(r history.Record) {
		if !r.Request.Open {
			<-stopping
			time.Sleep(20 * time.Millisecond) // Stop has every chance to return too early
			recorded.Store(true)
		}
	}})
	require.NoError(t, err)
	response, err := client(t, p.Config()).Get(p.URL() + "/api/v1/pods?watch=true")
	require.NoError(t, err)
	defer response.Body.Close()
	close(stopping)
	require.NoError(t, p.Stop())
	require.True(t, recorded.Load())
}

func TestContextEndsIt(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	ctx, cancel := context.WithCancel(t.Context())
	p, err := apiproxy.Start(ctx, apiproxy.Options{Upstream: w.upstream})
	require.NoError(t, err)
	cancel()
	<-p.Done()
	require.NoError(t, p.Wait())
}

func TestKeysKeepClientsAcrossARestart(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	keys, err := apiproxy.NewKeys()
	require.NoError(t, err)
	require.True(t, keys.Good())
	require.False(t, new(apiproxy.Keys).Good())
	first, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: w.upstream, Keys: keys})
	require.NoError(t, err)
	c := client(t, first.Config())
	_, body := do(t, c, first.URL(), "GET", "/version", "")
	require.Equal(t, "hello", body)
	require.NoError(t, first.Stop())
	second, err := apiproxy.Start(t.Context(), apiproxy.Options{
		Upstream: w.upstream, Keys: keys, Listen: strings.TrimPrefix(first.URL(), "https://")})
	require.NoError(t, err)
	defer second.Stop()
	eventually(t, "the same client is served", func() bool {
		response, err := c.Get(first.URL() + "/version")
		if err != nil {
			return false // on the connection that it had
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

func TestListenEverywhere(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	p, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: w.upstream, Listen: "0.0.0.0:0"})
	require.NoError(t, err)
	defer p.Stop()
	_, body := do(t, client(t, p.Config()), p.URL(), "GET", "/version", "")
	require.Equal(t, "hello", body)
}

// Where the address is not this machine's own, the certificate is for another name than the URL has.
func TestListenElsewhere(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if !ok || !network.IP.IsGlobalUnicast() {
			continue
		}
		p, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: w.upstream, Listen: net.JoinHostPort(network.IP.String(), "0")})
		require.NoError(t, err)
		defer p.Stop()
		_, body := do(t, client(t, p.Config()), p.URL(), "GET", "/version", "")
		require.Equal(t, "hello", body)
		return
	}
	t.Skip("this machine has no address but its own")
}

func TestStartRefuses(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	for want, options := range map[string]apiproxy.Options{
		"Options.Upstream is nil":                {},
		`Options.Outside is "a/b"`:               {Upstream: w.upstream, Outside: "a/b"},
		"address already in use":                 {Upstream: w.upstream, Listen: strings.TrimPrefix(w.URL(), "https://")},
		"listen: ":                               {Upstream: w.upstream, Listen: "nonsense"},
		`fault "verb=get": it does not say what`: {Upstream: w.upstream, Faults: []apiproxy.Fault{{Match: apiproxy.Match{Verb: "get"}}}},
		"use the proxy's certificate":            {Upstream: w.upstream, Keys: &apiproxy.Keys{}},
		"find the API server's URL":              {Upstream: &rest.Config{Host: "http://[::1"}},
		"create a client of":                     {Upstream: &rest.Config{Host: "https://localhost", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}},
	} {
		_, err := apiproxy.Start(t.Context(), options)
		require.ErrorContains(t, err, want)
	}
	other := rest.CopyConfig(w.upstream)
	other.Host = "https://elsewhere"
	_, err := w.ConfigFor(other)
	require.ErrorContains(t, err, "the identity is for the API server https://elsewhere, but this is a proxy of https://127.0.0.1:")
}

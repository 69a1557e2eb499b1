package apiproxy_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
)

func TestSetFaults(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer upstream.Close()
	second := apiproxy.Fault{Match: apiproxy.Match{Verb: "delete", From: 2, To: 2}, Effect: apiproxy.Effect{Refuse: 500}}
	proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{
		Upstream: &rest.Config{Host: upstream.URL}, Faults: []apiproxy.Fault{second},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, proxy.Stop()) }()
	transport, err := rest.TransportFor(proxy.Config())
	require.NoError(t, err)
	remove := func() int {
		request, err := http.NewRequest(http.MethodDelete, proxy.URL()+"/api/v1/namespaces/shop/pods/x", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Error(err)
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	three := func() []int { return []int{remove(), remove(), remove()} }

	require.Equal(t, []int{200, 500, 200}, three())
	require.Equal(t, []int{200, 200, 200}, three(), "the second one has been")
	require.NoError(t, proxy.SetFaults(second))
	require.Equal(t, []int{200, 500, 200}, three(), "the same fault counts from 1 again")
	require.ErrorContains(t, proxy.SetFaults(second, apiproxy.Fault{Effect: apiproxy.Effect{Refuse: 200}}), `fault "refuse=200": `)
	require.Equal(t, []int{200, 200, 200}, three(), "a fault that makes no sense changes nothing, not even the counts")
	require.NoError(t, proxy.SetFaults(apiproxy.Fault{Effect: apiproxy.Effect{Refuse: 503}}))
	require.Equal(t, []int{503, 503, 503}, three(), "the new fault replaces the old one")
	require.NoError(t, proxy.SetFaults())
	require.Equal(t, []int{200, 200, 200}, three())

	// For the race detector.
	var both sync.WaitGroup
	both.Go(func() {
		for range 50 {
			remove()
		}
	})
	for range 50 {
		require.NoError(t, proxy.SetFaults(second))
	}
	both.Wait()
}

// A fault that two proxies share is for the second request that arrives at any of them.
func TestArm(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer upstream.Close()
	second := apiproxy.Arm(apiproxy.Fault{Match: apiproxy.Match{From: 2, To: 2}, Effect: apiproxy.Effect{Refuse: 500}})
	start := func() (get func() int) {
		proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: &rest.Config{Host: upstream.URL}, Armed: []*apiproxy.Armed{second}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Stop()) })
		transport, err := rest.TransportFor(proxy.Config())
		require.NoError(t, err)
		return func() int {
			request, err := http.NewRequest(http.MethodGet, proxy.URL()+"/api/v1/namespaces/shop/pods/x", nil)
			require.NoError(t, err)
			response, err := transport.RoundTrip(request)
			require.NoError(t, err)
			response.Body.Close()
			return response.StatusCode
		}
	}
	a, b := start(), start()
	second.SetPaused(true)
	require.Equal(t, []int{200, 200}, []int{a(), b()})
	second.SetPaused(false)
	require.Equal(t, []int{200, 500, 200, 200}, []int{a(), b(), b(), a()}, "those that came during the pause are not counted")

	_, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: &rest.Config{Host: upstream.URL}, Armed: []*apiproxy.Armed{
		apiproxy.Arm(apiproxy.Fault{Effect: apiproxy.Effect{Refuse: 200}}),
	}})
	require.ErrorContains(t, err, `fault "refuse=200": `)
}

package apiproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// What is no API server is found under its name, and recorded by verb and resource.
func TestOutside(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"metadata":{"name":"no Kubernetes object","resourceVersion":"7"},"said":"%s %s %s"}`, r.Method, r.RequestURI, body)
	}))
	defer server.Close()
	var memory history.Memory
	p, err := apiproxy.Start(t.Context(), apiproxy.Options{
		Upstream: &rest.Config{Host: server.URL}, Record: memory.Record, Outside: "cloud",
		Faults: []apiproxy.Fault{{Match: apiproxy.Match{Group: "cloud", Resource: "networks", Verb: "delete"}, Effect: apiproxy.Effect{Refuse: 409}}},
	})
	require.NoError(t, err)
	defer p.Stop()
	plain := &http.Client{Transport: &http.Transport{}}
	defer plain.CloseIdleConnections()
	cases := []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v2.0/networks?name=a", "", 200, "list networks.cloud "},
		{"GET", "/v2.0/networks/7", "", 200, "get networks.cloud 7"},
		{"POST", "/v2.0/networks", "{}", 200, "create networks.cloud "},
		{"PUT", "/v2.0/subnets/8", "{}", 200, "update subnets.cloud 8"},
		{"DELETE", "/v2.0/networks/7", "", 409, "delete networks.cloud 7"},
		{"GET", "/", "", 200, "get /cloud/ "},
	}
	for _, c := range cases {
		response, body := do(t, plain, p.URL(), c.method, c.path, c.body)
		require.Equal(t, c.status, response.StatusCode)
		if c.status == 200 {
			require.Contains(t, body, fmt.Sprintf(`"said":"%s %s %s"`, c.method, c.path, c.body))
		}
	}
	remove := func() string {
		_, body := do(t, plain, p.URL(), "DELETE", "/v2.0/networks/7", "")
		require.Contains(t, body, "(request req-")
		return body
	}
	require.NotEqual(t, remove(), remove(), "no two errors of a cloud have the same text")
	require.NoError(t, p.Stop()) // waits for the records
	require.Len(t, memory.History().Writes(), 5)
	for i, r := range memory.History().Requests[:len(cases)] {
		require.Equal(t, cases[i].want, r.Verb+" "+r.What()+" "+r.Name)
		require.Equal(t, cases[i].status, r.Status)
		require.Empty(t, r.RVAfter+r.UID)
	}
}

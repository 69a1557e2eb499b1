package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
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

// bill runs the program against an API server with these metrics, and returns its output and exit status.
func bill(t *testing.T, metrics http.HandlerFunc, args ...string) (stdout, stderr string, status int) {
	server := httptest.NewServer(metrics)
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: test, contexts: [{name: test, context: {cluster: test}}],
		clusters: [{name: test, cluster: {server: "%s"}}]}`
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, text, server.URL), 0o600))
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = []string{"RUN_MAIN=yes", "HOME=" + t.TempDir(), "KUBECONFIG=" + kubeconfig}
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	_ = cmd.Run() // its error is the exit status
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

func TestBill(t *testing.T) {
	scrapes := 0
	// Before every third scrape, a new iteration gets the ConfigMap and lists the Pods twice.
	metrics := func(w http.ResponseWriter, r *http.Request) {
		iterations := 7 + scrapes/3
		scrapes++
		var counts, sizes bytes.Buffer
		for _, m := range []struct {
			verb, resource, version string
			count, bytes            int
		}{
			{"POST", "configmaps", "v1", iterations, 77 * iterations}, // no read
			{"GET", "configmaps", "v1", iterations, 100 * iterations},
			{"LIST", "pods", "v1", iterations, 2500 * iterations},
			{"LIST", "pods", "v2", 3 + iterations, 9 + 1500*iterations},
			{"GET", "pods", "v1", 5, 500},                          // by another client, earlier
			{"LIST", "secrets", "v1", iterations, 77 * iterations}, // not asked for
		} {
			labels := fmt.Sprintf("resource=%q,verb=%q,version=%q", m.resource, m.verb, m.version)
			fmt.Fprintf(&counts, "apiserver_request_total{%s} %d\n", labels, m.count)
			fmt.Fprintf(&sizes, "apiserver_response_sizes_sum{%s} %d\n", labels, m.bytes)
		}
		fmt.Fprintf(w, "# TYPE apiserver_request_total counter\n%s# TYPE apiserver_response_sizes histogram\n%s", &counts, &sizes)
	}
	stdout, stderr, status := bill(t, metrics, "--iterations=2", "configmaps", "pods")
	require.Equal(t, `VERB    RESOURCE     REQUESTS/ITERATION   KB/ITERATION
GET     configmaps   1                    0.1
LIST    pods         2                    4.0
total                3                    4.1
`, stdout, "%s", stderr)
	require.Zero(t, status)
	require.Equal(t, 10, scrapes, "the first one, and three for each of the samples, which are one more than the iterations")
}

func TestErrors(t *testing.T) {
	page := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, text)
		}
	}
	noClient := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(noClient, []byte(`{apiVersion: v1, kind: Config, current-context: test, contexts: [{name: test, context: {cluster: test}}],
		clusters: [{name: test, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: bm9uZQ==}}]}`), 0o600))
	scrapes := 0
	failsLater := func(w http.ResponseWriter, _ *http.Request) {
		if scrapes++; scrapes > 2 {
			w.WriteHeader(http.StatusForbidden)
		}
	}
	for name, test := range map[string]struct {
		metrics http.HandlerFunc
		args    []string
		want    string
	}{
		"no resource":        {nil, nil, "bill: name at least one resource, such as pods; --iterations must be more than 0\n"},
		"no iterations":      {nil, []string{"--iterations=0", "pods"}, "bill: name at least one resource, such as pods; --iterations must be more than 0\n"},
		"missing file":       {nil, []string{"--kubeconfig=/nowhere/kubeconfig", "pods"}, `bill: read kubeconfig "/nowhere/kubeconfig": `},
		"no client":          {nil, []string{"--kubeconfig=" + noClient, "pods"}, "bill: unable to load root certificates: "},
		"no permission":      {page(http.StatusForbidden, ""), []string{"pods"}, "bill: read the API server's metrics: "},
		"no metrics":         {page(http.StatusOK, "<html>"), []string{"pods"}, "bill: read the API server's metrics: text format parsing error"},
		"fails in the midst": {failsLater, []string{"pods"}, "bill: read the API server's metrics: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, status := bill(t, test.metrics, test.args...)
			require.Equal(t, 1, status, "%s", stderr)
			require.Contains(t, stderr, test.want)
		})
	}
	require.Equal(t, 3, scrapes)
}

func TestPerIteration(t *testing.T) {
	marker, lists := request{"GET", "configmaps"}, request{"LIST", "nodes"}
	sample := func(iterations, count, bytes float64) map[request]usage {
		return map[request]usage{marker: {count: iterations}, lists: {count, bytes}}
	}
	for _, test := range []struct {
		name    string
		samples []map[request]usage
		want    usage
	}{
		{"one a time", []map[request]usage{sample(1, 1, 10), sample(2, 2, 20)}, usage{1, 10}},
		{"none", []map[request]usage{sample(1, 7, 70), sample(2, 7, 70), sample(3, 7, 70)}, usage{0, 0}},
		{"another client's requests in one iteration", []map[request]usage{sample(1, 1, 10), sample(2, 6, 500), sample(3, 7, 510), sample(4, 8, 520)}, usage{1, 10}},
		{"a sample in the middle of an iteration", []map[request]usage{sample(1, 0, 0), sample(2, 2, 20), sample(3, 3, 30), sample(4, 4, 40)}, usage{1, 10}},
		{"each second sample in the middle of an iteration", []map[request]usage{sample(1, 1, 10), sample(2, 1, 10), sample(3, 3, 30), sample(4, 3, 30), sample(5, 5, 50), sample(6, 5, 50)}, usage{1, 10}},
		{"two iterations between samples", []map[request]usage{sample(1, 1, 10), sample(3, 3, 30)}, usage{1, 10}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := perIteration(test.samples, marker, lists); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// It records what is new, says once that a program does not answer, and once that it does again.
func TestRecord(t *testing.T) {
	var depth atomic.Int64
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `# TYPE workqueue_depth gauge
workqueue_depth{name="pods"} %d
workqueue_depth{controller="nodes",name="nodes"} 7
# TYPE workqueue_retries_total counter
workqueue_retries_total{name="pods"} 2
# TYPE secret gauge
secret{password="hunter2"} 1
`, depth.Load())
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	records, reports := make(chan history.Record, 100), make(chan error, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		metrics.Record(ctx, server.URL, func(r history.Record) { records <- r }, func(err error) { reports <- err })
	}()
	next := func() string {
		s := (<-records).Sample
		require.False(t, s.Time.IsZero())
		require.Empty(t, s.Program)
		return fmt.Sprint(s.Metric, " ", s.Of, " ", s.Value)
	}
	require.Equal(t, []string{"workqueue_depth pods 0", "workqueue_depth nodes 7", "workqueue_retries_total pods 2"}, []string{next(), next(), next()})
	depth.Store(5)
	require.Equal(t, "workqueue_depth pods 5", next(), "what stays is not recorded again")
	down.Store(true)
	require.ErrorContains(t, <-reports, "503 Service Unavailable")
	depth.Store(6)
	down.Store(false)
	require.NoError(t, <-reports)
	require.Equal(t, "workqueue_depth pods 6", next())
	cancel()
	<-done
	require.Empty(t, records)
	require.Empty(t, reports)
}

func TestRecordOfSomethingElse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "<html>no metrics</html>") }))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	metrics.Record(ctx, server.URL, func(r history.Record) { require.Fail(t, "%v", r) }, func(err error) {
		require.ErrorContains(t, err, "text format parsing error")
		cancel()
	})
}

func TestCheck(t *testing.T) {
	for _, good := range []string{"http://127.0.0.1:8080/metrics", "https://[::1]/metrics"} {
		require.NoError(t, metrics.Check(good))
	}
	for _, bad := range []string{"", "127.0.0.1:8080", "localhost:8080/metrics", "file:///etc/passwd", "http://", ":"} {
		require.ErrorContains(t, metrics.Check(bad), "is not the URL of a program's metrics", bad)
	}
}

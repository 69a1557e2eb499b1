// Package metrics reads those metrics of a controller that say how much it has to do.
package metrics

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"example.com/controllers/harness/history"
)

// Kept are the metrics that are recorded: client-go's of its queues, under the names that controllers built on component-base or on
// controller-runtime serve.
var Kept = []string{
	"workqueue_depth", "workqueue_retries_total", "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds",
}

// Check returns an error for what is not the URL of metrics.
func Check(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not the URL of a program's metrics, such as http://127.0.0.1:8080/metrics", address)
	}
	return nil
}

const (
	every   = 200 * time.Millisecond
	timeout = 5 * time.Second
)

// Record asks for the metrics again and again until ctx is cancelled, and records each value that is new. The program may not have
// started, or may have ended; report is told whenever an attempt fails in another way than the one before, and then with nil when one
// works again.
func Record(ctx context.Context, address string, record func(history.Record), report func(error)) {
	client := &http.Client{Timeout: timeout}
	defer client.CloseIdleConnections()
	last := map[string]float64{}
	failed := ""
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		samples, err := read(ctx, client, address)
		if ctx.Err() != nil {
			return
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != failed {
			failed = text
			report(err)
		}
		for _, s := range samples {
			key := s.Metric + " " + s.Of
			if before, known := last[key]; !known || before != s.Value {
				last[key] = s.Value
				record(history.Record{Sample: &s})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// read reads the metrics once. They are sorted by metric and labels.
func read(ctx context.Context, client *http.Client, address string) (samples []history.Sample, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	now := time.Now()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", address, response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", address, err)
	}
	for _, name := range Kept {
		for _, m := range families[name].GetMetric() {
			samples = append(samples, history.Sample{Time: now, Metric: name, Of: labels(m), Value: m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()})
		}
	}
	return samples, nil
}

// labels returns the values of the labels of a metric, each once: controller-runtime gives a queue's name as two of them.
func labels(m *dto.Metric) string {
	var values []string
	for _, l := range m.GetLabel() {
		if v := l.GetValue(); v != "" && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return strings.Join(values, " ")
}

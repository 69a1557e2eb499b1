package main

import (
	"bytes"
	"context"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

// requests holds numbers of requests by verb, as the API server counts them: POST, PUT, APPLY, PATCH, DELETE, GET, LIST, WATCH.
type requests map[string]int

// requestsMetric is the API server's counter of requests.
const requestsMetric = "apiserver_request_total"

// countRequests returns the requests for Secrets that the API server has answered since its start.
func countRequests(ctx context.Context, client kubernetes.Interface) (requests, error) {
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	// There are thousands of lines, and parsing all of them takes longer than what is measured.
	var lines []byte
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("# TYPE "+requestsMetric+" ")) || bytes.HasPrefix(line, []byte(requestsMetric+"{")) {
			lines = append(lines, line...)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(lines))
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	counts := requests{}
	for _, metric := range families[requestsMetric].GetMetric() {
		if label(metric, "resource") == "secrets" {
			counts[label(metric, "verb")] += int(metric.GetCounter().GetValue())
		}
	}
	return counts, nil
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

func (r requests) sum(verbs ...string) (sum int) {
	for _, verb := range verbs {
		sum += r[verb]
	}
	return sum
}

func (r requests) writes() int {
	return r.sum("POST", "PUT", "APPLY", "PATCH", "DELETE", "DELETECOLLECTION")
}
func (r requests) reads() int { return r.sum("GET", "LIST") }

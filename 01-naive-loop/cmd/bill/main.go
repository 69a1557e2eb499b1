// Program bill prints how many requests one iteration of a polling loop sends, and how many bytes the API server
// returns, according to the API server's own metrics.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/naive-loop/internal/clusterconfig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bill:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig")
	iterations := flag.Int("iterations", 5, "number of iterations of the loop to measure")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bill [--iterations 5] RESOURCE...\nThe loop must send exactly one GET for the first resource in each iteration.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *iterations <= 0 || flag.NArg() == 0 {
		flag.Usage()
		return fmt.Errorf("name at least one resource, such as pods; --iterations must be more than 0")
	}
	config, err := clusterconfig.Load(*kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %q: %w", *kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	// Take each sample right after an iteration has started, so that the samples are whole iterations apart.
	marker := request{"GET", flag.Arg(0)}
	now, err := scrape(ctx, client, flag.Args())
	if err != nil {
		return err
	}
	samples := make([]map[request]usage, *iterations+1)
	for i := range samples {
		if now, err = awaitCount(ctx, client, flag.Args(), marker, now[marker].count+1); err != nil {
			return err
		}
		samples[i] = now
	}

	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "VERB\tRESOURCE\tREQUESTS/ITERATION\tKB/ITERATION")
	var total usage
	for _, request := range slices.SortedFunc(maps.Keys(now), func(a, b request) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	}) {
		usage := perIteration(samples, marker, request)
		if usage.count == 0 {
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%.0f\t%.1f\n", request.verb, request.resource, usage.count, usage.bytes/1000)
		total.count += usage.count
		total.bytes += usage.bytes
	}
	fmt.Fprintf(out, "total\t\t%.0f\t%.1f\n", total.count, total.bytes/1000)
	return out.Flush()
}

// perIteration returns what the requests of one kind cost in one iteration. The marker tells how many iterations two samples
// are apart. A sample may be taken in the middle of an iteration, so that one request is counted too early or too late:
// over two iterations, half a request is rounded away. Other clients send such requests, too, now and then, which is why
// this is a median.
func perIteration(samples []map[request]usage, marker, r request) usage {
	var counts, sizes []float64
	for i := range max(1, len(samples)-2) {
		before, after := samples[i], samples[min(i+2, len(samples)-1)]
		count := after[r].count - before[r].count
		counts = append(counts, count/(after[marker].count-before[marker].count))
		if count > 0 {
			sizes = append(sizes, (after[r].bytes-before[r].bytes)/count)
		}
	}
	count := math.Round(median(counts))
	if count == 0 {
		return usage{}
	}
	return usage{count, count * median(sizes)}
}

// median returns the middle of the values, or the lower one of the two in the middle.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// awaitCount polls the metrics until the API server has served count requests of the marker's kind, and returns
// the last sample.
func awaitCount(ctx context.Context, client kubernetes.Interface, resources []string, marker request, count float64) (map[request]usage, error) {
	for {
		now, err := scrape(ctx, client, resources)
		if err != nil || now[marker].count >= count {
			return now, err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type request struct{ verb, resource string }

// usage is a number of requests and the total size of their responses.
type usage struct{ count, bytes float64 }

// scrape returns how many GETs and LISTs the API server has served since it started, and the size of its responses
// on the wire. The metrics add up all clients.
func scrape(ctx context.Context, client kubernetes.Interface, resources []string) (map[request]usage, error) {
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	served := map[request]usage{}
	add := func(family string, value func(*dto.Metric) usage) {
		for _, metric := range families[family].GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			reads := labels["verb"] == "GET" || labels["verb"] == "LIST"
			if !reads || !slices.Contains(resources, labels["resource"]) {
				continue
			}
			request := request{labels["verb"], labels["resource"]}
			sum, more := served[request], value(metric)
			served[request] = usage{sum.count + more.count, sum.bytes + more.bytes}
		}
	}
	add("apiserver_request_total", func(m *dto.Metric) usage { return usage{count: m.GetCounter().GetValue()} })
	add("apiserver_response_sizes", func(m *dto.Metric) usage { return usage{bytes: m.GetHistogram().GetSampleSum()} })
	return served, nil
}

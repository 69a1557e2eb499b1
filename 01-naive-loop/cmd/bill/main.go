// Program bill prints how often an API server was asked for the state of the world, in a minute, and
// how much it answered, according to its own metrics.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
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
	sample := flag.Duration("for", 20*time.Second, "how long to count; the result is scaled to a minute")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bill [--for 20s] RESOURCE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *sample <= 0 || flag.NArg() == 0 {
		flag.Usage()
		return fmt.Errorf("name resources, such as pods, and a time of more than 0")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %q: %w", *kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	start := time.Now()
	before, err := scrape(ctx, client, flag.Args())
	if err != nil {
		return err
	}
	select {
	case <-time.After(*sample):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := scrape(ctx, client, flag.Args())
	if err != nil {
		return err
	}
	perMinute := time.Minute.Seconds() / time.Since(start).Seconds()

	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "VERB\tRESOURCE\tREQUESTS/MIN\tKB/MIN")
	var total usage
	for _, request := range slices.SortedFunc(maps.Keys(after), func(a, b request) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	}) {
		count := (after[request].count - before[request].count) * perMinute
		bytes := (after[request].bytes - before[request].bytes) * perMinute
		if count == 0 {
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%.0f\t%.0f\n", request.verb, request.resource, count, bytes/1000)
		total.count += count
		total.bytes += bytes
	}
	fmt.Fprintf(out, "total\t\t%.0f\t%.0f\n", total.count, total.bytes/1000)
	return out.Flush()
}

type request struct{ verb, resource string }

type usage struct{ count, bytes float64 }

// scrape returns how many GETs and LISTs there have been since the API server started, and how many
// bytes, on the wire, it answered them with. The metrics do not tell one client from another.
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
	seen := map[request]usage{}
	add := func(family string, value func(*dto.Metric) usage) {
		for _, metric := range families[family].GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			asks := labels["verb"] == "GET" || labels["verb"] == "LIST"
			if !asks || !slices.Contains(resources, labels["resource"]) {
				continue
			}
			request := request{labels["verb"], labels["resource"]}
			now, more := seen[request], value(metric)
			seen[request] = usage{now.count + more.count, now.bytes + more.bytes}
		}
	}
	add("apiserver_request_total", func(m *dto.Metric) usage { return usage{count: m.GetCounter().GetValue()} })
	add("apiserver_response_sizes", func(m *dto.Metric) usage { return usage{bytes: m.GetHistogram().GetSampleSum()} })
	return seen, nil
}

// Program bill prints what one pass of a polling loop asks an API server for, and how much it answers, according to
// the API server's own metrics.
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
	passes := flag.Int("passes", 5, "how many passes of the loop to count")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bill [--passes 5] RESOURCE...\nA pass gets one object of the first resource, once.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *passes <= 0 || flag.NArg() == 0 {
		flag.Usage()
		return fmt.Errorf("name resources, such as pods, and a number of passes of more than 0")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %q: %w", *kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	// Both times right after a pass has begun, so that whole passes lie in between.
	begins := request{"GET", flag.Arg(0)}
	now, err := scrape(ctx, client, flag.Args())
	if err != nil {
		return err
	}
	before, err := awaitCount(ctx, client, flag.Args(), begins, now[begins].count+1)
	if err != nil {
		return err
	}
	after, err := awaitCount(ctx, client, flag.Args(), begins, before[begins].count+float64(*passes))
	if err != nil {
		return err
	}
	counted := after[begins].count - before[begins].count

	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "VERB\tRESOURCE\tREQUESTS/PASS\tKB/PASS")
	var total usage
	for _, request := range slices.SortedFunc(maps.Keys(after), func(a, b request) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	}) {
		// Rounded, because the metrics may be read in the middle of a pass, and others ask now and then.
		count := math.Round((after[request].count - before[request].count) / counted)
		bytes := (after[request].bytes - before[request].bytes) / counted
		if count == 0 {
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%.0f\t%.1f\n", request.verb, request.resource, count, bytes/1000)
		total.count += count
		total.bytes += bytes
	}
	fmt.Fprintf(out, "total\t\t%.0f\t%.1f\n", total.count, total.bytes/1000)
	return out.Flush()
}

// awaitCount waits until there have been so many of one request, and returns the metrics of then.
func awaitCount(ctx context.Context, client kubernetes.Interface, resources []string, of request, count float64) (map[request]usage, error) {
	for {
		now, err := scrape(ctx, client, resources)
		if err != nil || now[of].count >= count {
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

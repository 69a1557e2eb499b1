package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
)

const (
	configMapName = "bench"  // the ConfigMap that the measured requests read and patch
	rounds        = 5        // watches of each content type on each path
	writers       = 8        // goroutines that cause the events concurrently, each on a ConfigMap of its own
	watchedLabel  = "events" // the value of the label "for" of the ConfigMaps of the watches, and the prefix of their names
)

// path is one of the two paths to the API server: direct, or through the proxy.
type path struct {
	name   string
	config *rest.Config
	client kubernetes.Interface
}

// pair is a measurement on both paths, in seconds.
type pair struct{ direct, proxied float64 }

// benchProxy measures what the recording proxy costs, on a control plane of its own: it sends the same requests
// directly and through the proxy, alternately. The proxy runs in this process and records to a file, as it does when a
// page is played.
func benchProxy(ctx context.Context, requests, events int, out io.Writer) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	direct, err := c.Config()
	if err != nil {
		return err
	}
	recorder, err := apiproxy.NewFileRecorder(filepath.Join(c.Dir(), "recording"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, recorder.Close()) }()
	proxy, err := apiproxy.Start(context.WithoutCancel(ctx), apiproxy.Options{Upstream: direct, Record: recorder.Record})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()

	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if requests > 0 {
		fmt.Fprintln(table, "a request, median (99th percentile)\tdirect\tthrough the proxy\tadded")
	}
	paths, err := newPaths(direct, proxy.Config(), runtime.ContentTypeJSON)
	if err != nil {
		return err
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMapName}, Data: map[string]string{"n": "0"}}
	if _, err := paths[0].client.CoreV1().ConfigMaps(namespace).Create(ctx, config, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ConfigMap %s: %w", configMapName, err)
	}
	if requests > 0 {
		for _, kind := range requestKinds {
			fmt.Fprintf(os.Stderr, "proxy: %d times %s, on each path\n", requests, kind.name)
			times, err := alternate(ctx, requests, paths, kind.send)
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			latencyRow(table, kind.name, times)
		}
	}
	if events > 0 {
		if requests > 0 {
			fmt.Fprintln(table)
		}
		fmt.Fprintln(table, "watch events a second, median (range)\tdirect\tthrough the proxy\tof direct")
		fmt.Fprintf(os.Stderr, "proxy: %d events, %d times on each path, as JSON and as protobuf\n", events, rounds)
		from, err := causeEvents(ctx, paths[0].client, events)
		if err != nil {
			return err
		}
		for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			if paths, err = newPaths(direct, proxy.Config(), contentType); err != nil {
				return err
			}
			times, err := alternate(ctx, rounds, paths, func(ctx context.Context, client kubernetes.Interface, _ int) error {
				return readEvents(ctx, client, from, events)
			})
			if err != nil {
				return fmt.Errorf("watch %d events: %w", events, err)
			}
			throughputRow(table, contentType, times, events)
		}
	}
	return table.Flush()
}

// newPaths returns the direct path and the one through the proxy, in this order, with clients that use contentType.
func newPaths(direct, proxied *rest.Config, contentType string) ([]path, error) {
	paths := []path{{name: "direct", config: direct}, {name: "proxy", config: proxied}}
	for i := range paths {
		config := rest.CopyConfig(paths[i].config)
		config.ContentType, config.AcceptContentTypes = contentType, contentType
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		paths[i].client = client
	}
	return paths, nil
}

// requestKinds are the requests whose latency is measured. number is different in each request.
var requestKinds = []struct {
	name string
	send func(ctx context.Context, client kubernetes.Interface, number int) error
}{
	{"GET of a ConfigMap", func(ctx context.Context, client kubernetes.Interface, _ int) error {
		_, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, configMapName, metav1.GetOptions{})
		return err
	}},
	{"PATCH of a ConfigMap", func(ctx context.Context, client kubernetes.Interface, number int) error {
		_, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, configMapName, types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"n":"%d"}}`, number), metav1.PatchOptions{})
		return err
	}},
}

// alternate calls send on both paths in turn, count times each, and returns how long the calls took. Which path is first
// alternates as well, because the second one may benefit from what the API server has cached for the first. Before
// that, up to 20 pairs of calls warm up the caches and do not count.
func alternate(ctx context.Context, count int, paths []path, send func(context.Context, kubernetes.Interface, int) error) ([]pair, error) {
	warmUp := min(count, 20)
	var pairs []pair
	for number := range count + warmUp {
		var took [2]float64
		for turn := range paths {
			i := (turn + number) % len(paths)
			start := time.Now()
			if err := send(ctx, paths[i].client, 2*number+turn+1); err != nil {
				return nil, fmt.Errorf("%s: %w", paths[i].name, err)
			}
			took[i] = time.Since(start).Seconds()
		}
		if number >= warmUp {
			pairs = append(pairs, pair{direct: took[0], proxied: took[1]})
		}
	}
	return pairs, nil
}

// causeEvents creates ConfigMaps and then changes them, events times in all. A watch that
// starts at the resourceVersion that it returns reports these changes, and nothing before them.
func causeEvents(ctx context.Context, client kubernetes.Interface, events int) (resourceVersion string, err error) {
	maps := client.CoreV1().ConfigMaps(namespace)
	var configMaps []*corev1.ConfigMap
	for writer := range writers {
		m, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", watchedLabel, writer), Labels: map[string]string{"for": watchedLabel}},
		}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("create a ConfigMap to watch: %w", err)
		}
		configMaps = append(configMaps, m)
	}
	group, ctx := errgroup.WithContext(ctx)
	for writer, m := range configMaps {
		group.Go(func() error {
			for number := writer; number < events; number += writers {
				_, err := maps.Patch(ctx, m.Name, types.MergePatchType,
					fmt.Appendf(nil, `{"data":{"n":"%d"}}`, number), metav1.PatchOptions{})
				if err != nil {
					return fmt.Errorf("change ConfigMap %s: %w", m.Name, err)
				}
			}
			return nil
		})
	}
	return configMaps[writers-1].ResourceVersion, group.Wait()
}

// readEvents reads the given number of events in one watch, which starts at the resourceVersion from. The API server
// has all of them in its watch cache, so it sends them as fast as it can.
func readEvents(ctx context.Context, client kubernetes.Interface, from string, events int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, hangTimeout, fmt.Errorf("not all events have arrived within %s", hangTimeout))
	defer cancel()
	watch, err := client.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: from, LabelSelector: "for=" + watchedLabel})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for range events {
		select {
		case event, ok := <-watch.ResultChan():
			if _, isConfigMap := event.Object.(*corev1.ConfigMap); !ok || !isConfigMap {
				return fmt.Errorf("the watch ended early, or sent something other than a ConfigMap: event %q, object %T", event.Type, event.Object)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// latencyRow writes a row of the table of latencies. The last column is the median of the differences of the pairs, not
// the difference of the medians.
func latencyRow(w io.Writer, name string, times []pair) {
	var direct, proxied, added []float64
	for _, p := range times {
		direct, proxied, added = append(direct, p.direct), append(proxied, p.proxied), append(added, p.proxied-p.direct)
	}
	cell := func(seconds []float64) string {
		return fmt.Sprintf("%s (%s)", milliseconds(summarize(seconds).median), milliseconds(percentile(seconds, 0.99)))
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, cell(direct), cell(proxied), milliseconds(summarize(added).median))
}

// throughputRow writes a row of the table of events per second.
func throughputRow(w io.Writer, name string, times []pair, events int) {
	var direct, proxied, share []float64
	for _, p := range times {
		direct, proxied = append(direct, float64(events)/p.direct), append(proxied, float64(events)/p.proxied)
		share = append(share, p.direct/p.proxied)
	}
	cell := func(rates []float64) string {
		s := summarize(rates)
		return fmt.Sprintf("%.0f (%.0f – %.0f)", s.median, s.min, s.max)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%.0f %%\n", name, cell(direct), cell(proxied), 100*summarize(share).median)
}

// percentile returns a percentile of the numbers. fraction is between 0 and 1, such as 0.99.
func percentile(numbers []float64, fraction float64) float64 {
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[min(len(sorted)-1, int(fraction*float64(len(sorted))))]
}

func milliseconds(s float64) string { return fmt.Sprintf("%.2f ms", 1000*s) }

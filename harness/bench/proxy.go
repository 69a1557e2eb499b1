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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
)

const (
	recorded    = "bench"  // the ConfigMap that is asked for, and whose changes are watched
	rounds      = 5        // of each kind of watch, on each way
	writers     = 8        // at the same time, to make the events
	watchEvents = "events" // of which all are read, in one watch that begins before the first
)

// way is one of the two ways to the API server.
type way struct {
	name   string
	config *rest.Config
	client kubernetes.Interface
}

// pair is one number of each way.
type pair struct{ direct, proxied float64 }

// benchProxy measures what the recording proxy costs, on a control plane of its own: the same requests go
// directly and through it, by turns. The proxy is in this process, as in a page that is played, and
// writes its recording to a file.
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
	ways, err := waysOf(direct, proxy.Config(), runtimeJSON)
	if err != nil {
		return err
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: recorded}, Data: map[string]string{"n": "0"}}
	if _, err := ways[0].client.CoreV1().ConfigMaps(namespace).Create(ctx, config, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make ConfigMap %s: %w", recorded, err)
	}
	if requests > 0 {
		for _, kind := range requestKinds {
			fmt.Fprintf(os.Stderr, "proxy: %d times %s, on each way\n", requests, kind.name)
			times, err := alternate(ctx, requests, ways, kind.do)
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
		fmt.Fprintf(os.Stderr, "proxy: %d events, %d times on each way, as JSON and as protobuf\n", events, rounds)
		from, err := makeEvents(ctx, ways[0].client, events)
		if err != nil {
			return err
		}
		for _, contentType := range []string{runtimeJSON, "application/vnd.kubernetes.protobuf"} {
			if ways, err = waysOf(direct, proxy.Config(), contentType); err != nil {
				return err
			}
			times, err := alternate(ctx, rounds, ways, func(ctx context.Context, client kubernetes.Interface, _ int) error {
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

const runtimeJSON = "application/json"

// waysOf returns the direct way and the one through the proxy.
func waysOf(direct, proxied *rest.Config, contentType string) ([]way, error) {
	ways := []way{{name: "direct", config: direct}, {name: "proxy", config: proxied}}
	for i := range ways {
		config := rest.CopyConfig(ways[i].config)
		config.ContentType, config.AcceptContentTypes = contentType, contentType
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		ways[i].client = client
	}
	return ways, nil
}

// requestKinds are the requests whose time is measured.
var requestKinds = []struct {
	name string
	do   func(ctx context.Context, client kubernetes.Interface, number int) error
}{
	{"GET of a ConfigMap", func(ctx context.Context, client kubernetes.Interface, _ int) error {
		_, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, recorded, metav1.GetOptions{})
		return err
	}},
	{"PATCH of a ConfigMap", func(ctx context.Context, client kubernetes.Interface, number int) error {
		_, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, recorded, types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"n":"%d"}}`, number), metav1.PatchOptions{})
		return err
	}},
}

// alternate does something on each way, by turns, and returns how many seconds it took. Who is first
// changes too, so that what is cached for the second is for both as often. The first turns are not counted.
func alternate(ctx context.Context, times int, ways []way, do func(context.Context, kubernetes.Interface, int) error) ([]pair, error) {
	warmUp := min(times, 20)
	var pairs []pair
	for number := range times + warmUp {
		var took [2]float64
		for turn := range ways {
			i := (turn + number) % len(ways)
			start := time.Now()
			if err := do(ctx, ways[i].client, 2*number+turn+1); err != nil {
				return nil, fmt.Errorf("%s: %w", ways[i].name, err)
			}
			took[i] = time.Since(start).Seconds()
		}
		if number >= warmUp {
			pairs = append(pairs, pair{direct: took[0], proxied: took[1]})
		}
	}
	return pairs, nil
}

// makeEvents changes a ConfigMap so many times, and returns the resourceVersion before.
func makeEvents(ctx context.Context, client kubernetes.Interface, events int) (resourceVersion string, err error) {
	maps := client.CoreV1().ConfigMaps(namespace)
	var made []*corev1.ConfigMap
	for writer := range writers {
		m, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", watchEvents, writer), Labels: map[string]string{"for": watchEvents}},
		}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("make a ConfigMap to watch: %w", err)
		}
		made = append(made, m)
	}
	group, ctx := errgroup.WithContext(ctx)
	for writer, m := range made {
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
	return made[writers-1].ResourceVersion, group.Wait()
}

// readEvents reads all events from a resourceVersion on, which the API server has ready, as fast as it can.
func readEvents(ctx context.Context, client kubernetes.Interface, from string, events int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit, fmt.Errorf("not all events have come after %s", bootLimit))
	defer cancel()
	watch, err := client.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: from, LabelSelector: "for=" + watchEvents})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for range events {
		select {
		case event, ok := <-watch.ResultChan():
			if _, is := event.Object.(*corev1.ConfigMap); !ok || !is {
				return fmt.Errorf("the watch ended early, or with what is no ConfigMap: %s %T", event.Type, event.Object)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// latencyRow writes a line about the time that a request takes. What is added is the median of what the
// pairs differ by.
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

// throughputRow writes a line about the events that come in a second.
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

// percentile returns the number that a share of the numbers does not exceed.
func percentile(numbers []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func milliseconds(s float64) string { return fmt.Sprintf("%.2f ms", 1000*s) }

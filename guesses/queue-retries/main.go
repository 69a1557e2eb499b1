// Queue-retries counts what a queue reports as workqueue_retries_total.
package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// provider provides the metric of the retries, and none of the others.
type provider struct{ retries atomic.Int64 }

func (p *provider) NewRetriesMetric(string) workqueue.CounterMetric { return p }
func (p *provider) Inc()                                            { p.retries.Add(1) }

func (*provider) NewDepthMetric(string) workqueue.GaugeMetric            { return ignored{} }
func (*provider) NewAddsMetric(string) workqueue.CounterMetric           { return ignored{} }
func (*provider) NewLatencyMetric(string) workqueue.HistogramMetric      { return ignored{} }
func (*provider) NewWorkDurationMetric(string) workqueue.HistogramMetric { return ignored{} }
func (*provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return ignored{}
}
func (*provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return ignored{}
}

type ignored struct{}

func (ignored) Inc()            {}
func (ignored) Dec()            {}
func (ignored) Set(float64)     {}
func (ignored) Observe(float64) {}

func main() {
	metrics := &provider{}
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "guess", MetricsProvider: metrics})
	defer queue.ShutDown()
	count := func(call string, add func()) {
		before := metrics.retries.Load()
		add()
		fmt.Printf("%s: +%d\n", call, metrics.retries.Load()-before)
	}
	count("Add", func() { queue.Add("web") })
	count("AddAfter 1m, as a resync", func() { queue.AddAfter("web", time.Minute) })
	count("AddAfter 1m, once more", func() { queue.AddAfter("web", time.Minute) })
	count("AddRateLimited, after an error", func() { queue.AddRateLimited("web") })
}

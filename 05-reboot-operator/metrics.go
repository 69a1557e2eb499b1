package reboot

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
)

// metrics are the controller's own.
type metrics struct {
	lister    listers.NodeLister
	nodes     *prometheus.Desc
	reboots   prometheus.Counter
	failures  *prometheus.CounterVec
	drains    prometheus.Histogram
	durations prometheus.Histogram
}

func newMetrics(lister listers.NodeLister) *metrics {
	seconds := prometheus.ExponentialBuckets(1, 2, 13) // up to 68 minutes
	return &metrics{
		lister:  lister,
		nodes:   prometheus.NewDesc("reboot_nodes", "Number of Nodes by phase.", []string{"phase"}, nil),
		reboots: prometheus.NewCounter(prometheus.CounterOpts{Name: "reboot_completed_total", Help: "Number of reboots that a new boot ID has proved."}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reboot_failures_total", Help: "Number of attempts that were given up or are overdue, by reason."}, []string{"reason"}),
		drains: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "reboot_drain_duration_seconds", Help: "Time from the admission of a Node until it was drained.", Buckets: seconds}),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "reboot_duration_seconds", Help: "Time from the start of a reboot until the new boot ID was seen.", Buckets: seconds}),
	}
}

// observe updates the metrics for a change of a Node's phase. An agent that completes a reboot frees its slot in the same
// write; an administrator who removes reboot-in-progress does not, and a Node that was never admitted had none.
func (m *metrics) observe(old, node *corev1.Node) {
	_, admitted := old.Annotations[AdmittedAnnotation]
	switch from, to := PhaseOf(old), PhaseOf(node); {
	case from == Draining && to == Approved:
		m.drains.Observe(sinceThen(node, AdmittedAnnotation).Seconds())
	case from == InProgress && admitted && !to.holdsSlot():
		m.reboots.Inc()
		m.durations.Observe(sinceThen(old, SinceAnnotation).Seconds())
	}
}

// sinceThen returns how long it is since the time in an annotation. Somebody else's clock may be ahead.
func sinceThen(node *corev1.Node, annotation string) time.Duration {
	return max(0, time.Since(timeOf(node, annotation)))
}

// Metrics returns the controller's own metrics.
func (c *Controller) Metrics() prometheus.Collector { return c.metrics }

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- m.nodes
	for _, collector := range []prometheus.Collector{m.reboots, m.failures, m.drains, m.durations} {
		collector.Describe(descriptions)
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(values chan<- prometheus.Metric) {
	counts := map[Phase]int{}
	nodes, _ := m.lister.List(labels.Everything()) // a lister's cache cannot fail
	for _, node := range nodes {
		counts[PhaseOf(node)]++
	}
	for _, phase := range Phases {
		values <- prometheus.MustNewConstMetric(m.nodes, prometheus.GaugeValue, float64(counts[phase]), string(phase))
	}
	for _, collector := range []prometheus.Collector{m.reboots, m.failures, m.drains, m.durations} {
		collector.Collect(values)
	}
}

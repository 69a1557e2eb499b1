package reboot

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"

	"example.com/controllers/reboot/protocol"
)

// metrics are the controller's own.
type metrics struct {
	lister    listers.NodeLister
	counts    func(*corev1.Node) bool // false for a Node that concerns only other controllers
	nodes     *prometheus.Desc
	reboots   prometheus.Counter
	failures  *prometheus.CounterVec
	drains    prometheus.Histogram
	durations prometheus.Histogram
}

func newMetrics(lister listers.NodeLister, counts func(*corev1.Node) bool) *metrics {
	seconds := prometheus.ExponentialBuckets(1, 2, 13) // up to 68 minutes
	return &metrics{
		lister:  lister,
		counts:  counts,
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
	if !m.counts(old) {
		return
	}
	_, admitted := old.Annotations[protocol.AdmittedAnnotation]
	switch from, to := protocol.PhaseOf(old), protocol.PhaseOf(node); {
	case from == protocol.Draining && to == protocol.Approved:
		m.drains.Observe(protocol.SinceThen(node, protocol.AdmittedAnnotation).Seconds())
	case from == protocol.InProgress && admitted && !to.HoldsSlot():
		m.reboots.Inc()
		m.durations.Observe(protocol.SinceThen(old, protocol.SinceAnnotation).Seconds())
	}
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
	counts := map[protocol.Phase]int{}
	nodes, _ := m.lister.List(labels.Everything()) // a lister's cache cannot fail
	for _, node := range nodes {
		if m.counts(node) {
			counts[protocol.PhaseOf(node)]++
		}
	}
	for _, phase := range protocol.Phases {
		values <- prometheus.MustNewConstMetric(m.nodes, prometheus.GaugeValue, float64(counts[phase]), string(phase))
	}
	for _, collector := range []prometheus.Collector{m.reboots, m.failures, m.drains, m.durations} {
		collector.Collect(values)
	}
}

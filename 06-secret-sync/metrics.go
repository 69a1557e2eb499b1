package secretsync

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the controller's own.
type metrics struct {
	outcomes *outcomes
	pending  *pending
	copies   *prometheus.Desc
	refused  *prometheus.Desc
	behind   *prometheus.Desc
	writes   *prometheus.CounterVec
	refusals *prometheus.CounterVec
	lag      prometheus.Histogram
}

func newMetrics(outcomes *outcomes, pending *pending) *metrics {
	return &metrics{
		outcomes: outcomes, pending: pending,
		copies:  prometheus.NewDesc("secretsync_copies", "Number of copies that exist or should, by state.", []string{"state"}, nil),
		refused: prometheus.NewDesc("secretsync_refused", "Number of copies that should exist but cannot, by reason.", []string{"reason"}, nil),
		behind:  prometheus.NewDesc("secretsync_behind_seconds", "Age of the oldest change that has not reached a copy yet, in seconds; 0 if there is none. Refused copies do not count.", nil, nil),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secretsync_writes_total", Help: "Number of successful writes, by action."}, []string{"action"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secretsync_refusals_total", Help: "Number of new refusals of copies, by reason."}, []string{"reason"}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "secretsync_lag_seconds", Help: "Time from the event that made a write necessary until the write.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 20)}), // up to 9 minutes
	}
}

// Metrics returns the controller's own metrics.
func (c *Controller) Metrics() prometheus.Collector { return c.metrics }

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{m.copies, m.refused, m.behind} {
		descriptions <- description
	}
	for _, collector := range []prometheus.Collector{m.writes, m.refusals, m.lag} {
		collector.Describe(descriptions)
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(values chan<- prometheus.Metric) {
	byState, byReason := m.outcomes.counts()
	for _, state := range States {
		values <- prometheus.MustNewConstMetric(m.copies, prometheus.GaugeValue, float64(byState[state]), string(state))
	}
	for reason, count := range byReason {
		values <- prometheus.MustNewConstMetric(m.refused, prometheus.GaugeValue, float64(count), string(reason))
	}
	behind := 0.0
	if oldest := m.pending.oldest(); !oldest.IsZero() {
		behind = time.Since(oldest).Seconds()
	}
	values <- prometheus.MustNewConstMetric(m.behind, prometheus.GaugeValue, behind)
	for _, collector := range []prometheus.Collector{m.writes, m.refusals, m.lag} {
		collector.Collect(values)
	}
}

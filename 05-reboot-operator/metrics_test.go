package reboot

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/controllers/reboot/protocol"
)

// metrics returns the values of the controller's own metrics by name and label, and the count and the sum of histograms.
func (p *process) metrics(t *testing.T) map[string]float64 {
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(p.collector))
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			switch {
			case metric.GetHistogram() != nil:
				values[name+" count"] = float64(metric.GetHistogram().GetSampleCount())
				values[name+" sum"] = metric.GetHistogram().GetSampleSum()
			case metric.GetCounter() != nil:
				values[name] = metric.GetCounter().GetValue()
			default:
				values[name] = metric.GetGauge().GetValue()
			}
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(4)
		w.grace = 10500 * time.Millisecond // the drain looks again once a second
		w.addPod("web", "node-00")
		w.addPod("db", "node-01")
		w.protect("db", true)
		controller := w.startController(0)
		w.request("node-00")
		advance(2 * time.Minute)
		w.requireDone(1, "node-00")
		w.request("node-01", "node-02")
		advance(9 * time.Minute)
		want := map[string]float64{
			"reboot_nodes Idle": 2, "reboot_nodes Needed": 1, "reboot_nodes Draining": 1, "reboot_nodes Approved": 0, "reboot_nodes InProgress": 0, "reboot_nodes Cancelled": 0,
			"reboot_completed_total":              1,
			"reboot_drain_duration_seconds count": 1, "reboot_drain_duration_seconds sum": 11.5,
			"reboot_duration_seconds count": 1, "reboot_duration_seconds sum": 30.5,
		}
		require.Equal(t, want, controller.metrics(t))
		w.locked(func() { w.machines["node-02"].off = true })
		advance(2 * time.Minute) // node-01 is given up, and node-02 does not come back
		advance(time.Hour)
		got := controller.metrics(t)
		require.EqualValues(t, 1, got["reboot_failures_total DrainTimeout"])
		require.EqualValues(t, 1, got["reboot_failures_total RebootTimeout"])
		require.EqualValues(t, 1, got["reboot_nodes InProgress"])
		require.EqualValues(t, 1, got["reboot_completed_total"])
		require.EqualValues(t, 2, got["reboot_drain_duration_seconds count"], "of node-00 and node-02; that of node-01 was given up")
	})
}

// A reboot is completed only if an agent has proved it by a new boot ID.
func TestMetricsOfRebootsThatAreNotCompleted(t *testing.T) {
	for name, give := range map[string]func(w *world){
		"an administrator gives it up": func(w *world) {
			w.request("node-00")
			advance(time.Minute)
			w.annotate("node-00", protocol.InProgressAnnotation, "-")
		},
		"an administrator gives it up, and asks for another one": func(w *world) {
			w.request("node-00")
			advance(time.Minute)
			w.request("node-00")
			advance(time.Minute)
			w.annotate("node-00", protocol.InProgressAnnotation, "-")
		},
		"somebody else writes reboot-in-progress": func(w *world) { w.annotate("node-00", protocol.InProgressAnnotation, "boot-0") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addMachines(1)
				w.locked(func() { w.machines["node-00"].broken = true })
				controller := w.startController(0)
				advance(time.Second)
				give(w)
				advance(time.Second)
				got := controller.metrics(t)
				require.Zero(t, got["reboot_completed_total"])
				require.Zero(t, got["reboot_duration_seconds count"])
			})
		})
	}
}

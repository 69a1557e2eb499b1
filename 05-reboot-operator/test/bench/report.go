package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/controllers/harness/history"
)

func isEvents(c history.Cost) bool { return strings.HasPrefix(c.Resource, "events") }
func isLease(c history.Cost) bool  { return strings.HasPrefix(c.Resource, "leases") }
func isWrite(c history.Cost) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, c.Verb)
}

// isReboot says whether a request is a write for a reboot: neither an Event nor the leader's Lease.
func isReboot(c history.Cost) bool { return isWrite(c) && !isEvents(c) && !isLease(c) }

// isRead says whether a request is anything but a write.
func isRead(c history.Cost) bool { return !isWrite(c) }

// sum returns the number of requests of one kind, and how many of them failed.
func sum(costs []history.Cost, kind func(history.Cost) bool) (requests, failed int) {
	for _, c := range costs {
		if kind(c) {
			requests, failed = requests+c.Requests, failed+c.Failed
		}
	}
	return requests, failed
}

// report prints the results as a table.
func report(w io.Writer, o options, r result) error {
	fmt.Fprintf(w, "\n%d Nodes with lesson 5's controller and agents, of which %d reboot; --max-unavailable=%d, boot time %s\n\n", r.nodes, r.reboots, o.maxUnavailable, o.bootTime)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

	waves := (r.reboots + o.maxUnavailable - 1) / o.maxUnavailable
	wave := r.reboot.took / time.Duration(waves)
	line("until they have rebooted", "%s", seconds(r.reboot.took))
	line("waves, each of up to "+fmt.Sprint(o.maxUnavailable), "%d", waves)
	line("a wave, on average", "%s (%.2f × the boot time)", seconds(wave), float64(wave)/float64(o.bootTime))
	line("a Node was unavailable for, median (99th percentile)", "%s (%s)", seconds(percentile(r.slots, 0.5)), seconds(percentile(r.slots, 0.99)))
	line("Nodes that rebooted at the same time, at most", "%d", r.mostAdmitted)
	line("the controller's CPU time", "%s (%.1f ms for each reboot)", seconds(r.reboot.cpu), r.cpuPerReboot())
	line("the controller's peak memory", "%.0f MB", float64(r.reboot.peak)/1e6)

	// kinds prints a section for each kind of request, with a line for each verb, resource and program.
	kinds := func(p phase, number func(requests, failed int) string) {
		for _, kind := range []struct {
			name string
			is   func(history.Cost) bool
		}{{"writes", isReboot}, {"Events", isEvents}, {"writes of the Lease", func(c history.Cost) bool { return isWrite(c) && isLease(c) }}, {"reads", isRead}} {
			ours, oursFailed := sum(p.controller, kind.is)
			theirs, theirsFailed := sum(p.agents, kind.is)
			line("  "+kind.name, "%s", number(ours+theirs, oursFailed+theirsFailed))
			for _, by := range []struct {
				name  string
				costs []history.Cost
			}{{"controller", p.controller}, {"agent", p.agents}} {
				for _, c := range by.costs {
					if kind.is(c) && c.Requests > 0 {
						line(fmt.Sprintf("    %s: %s %s", by.name, c.Verb, c.Resource), "%s", number(c.Requests, c.Failed))
					}
				}
			}
		}
	}
	per := func(of float64) func(int, int) string {
		return func(requests, failed int) string {
			text := fmt.Sprintf("%.2f", float64(requests)/of)
			if failed > 0 {
				text += fmt.Sprintf(" (%.2f failed)", float64(failed)/of)
			}
			return text
		}
	}
	line("for each reboot:", "")
	kinds(r.reboot, per(float64(r.reboots)))
	line("at rest, for", "%s", seconds(r.rest.took))
	line("a minute:", "")
	kinds(r.rest, per(r.rest.took.Minutes()))
	line("  the controller's CPU time", "%.2f s", r.rest.cpu.Seconds()/r.rest.took.Minutes())
	return table.Flush()
}

// percentile returns a percentile of the durations. fraction is between 0 and 1, such as 0.99.
func percentile(durations []time.Duration, fraction float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[min(len(sorted)-1, int(fraction*float64(len(sorted))))]
}

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/controllers/harness/history"
)

// writes returns the number of writes to the API server, without Events.
func (p phase) writes() (total int) {
	for _, c := range p.costs {
		if isWrite(c) {
			total += c.Requests
		}
	}
	return total
}

func isWrite(c history.Cost) bool {
	return !isEvents(c) && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, c.Verb)
}

func isEvents(c history.Cost) bool { return strings.HasPrefix(c.Resource, "events") }

func (p phase) totalCalls() (total int) {
	for _, count := range p.calls {
		total += count
	}
	return total
}

// rows returns the numbers of a phase by label. The first two characters of a label are for sorting only.
func (p phase) rows() map[string]int {
	const (
		writes, write, events, reads = "1 writes to the API server", "2   ", "3 Events", "4 reads"
		calls, call                  = "5 requests to Neutron", "6   "
	)
	rows := map[string]int{writes: p.writes(), events: 0, reads: 0, calls: p.totalCalls()}
	for _, c := range p.costs {
		switch {
		case isEvents(c):
			rows[events] += c.Requests
		case isWrite(c):
			rows[write+c.Verb+" "+c.Resource] += c.Requests
		default:
			rows[reads] += c.Requests
		}
	}
	for name, count := range p.calls {
		if count > 0 {
			rows[call+name] += count
		}
	}
	return rows
}

// report prints the results of one number of Networks as a table.
func report(w io.Writer, all []result) error {
	networks := all[0].networks
	fmt.Fprintf(w, "\n%d Networks with lesson 4's controller\n\n", networks)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	line := func(name string, cell func(result) string) {
		fmt.Fprint(table, name)
		for _, r := range all {
			fmt.Fprint(table, "\t", cell(r))
		}
		fmt.Fprintln(table)
	}
	line("workers", func(r result) string { return fmt.Sprint(r.workers) })
	each := func(count int) string { return fmt.Sprintf("%.2f", float64(count)/float64(networks)) }
	section := func(of func(result) phase, number func(int) string) {
		names := map[string]bool{}
		for _, r := range all {
			for name := range of(r).rows() {
				names[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			line("  "+name[2:], func(r result) string { return number(of(r).rows()[name]) })
		}
	}
	took := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	line("until all are Ready", func(r result) string { return took(r.made.took) })
	line("for each Network:", func(result) string { return "" })
	section(func(r result) phase { return r.made }, each)
	line("at rest, for", func(r result) string { return took(r.rest.took) })
	section(func(r result) phase { return r.rest }, func(count int) string { return fmt.Sprint(count) })
	line("until all are deleted", func(r result) string { return took(r.deleted.took) })
	line("for each Network:", func(result) string { return "" })
	section(func(r result) phase { return r.deleted }, each)
	return table.Flush()
}

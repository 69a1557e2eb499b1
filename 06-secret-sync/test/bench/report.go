package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// reportSize prints what was measured with one size as a table.
func reportSize(w io.Writer, o options, s sizeResult) error {
	fmt.Fprintf(w, "\n%d × %d = %d copies of %d bytes, %d workers\n\n", s.sources, s.namespaces, s.copies(), o.bytes, o.workers)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tplain client\tcontroller\tratio\twrites per copy\treads per copy")
	for _, row := range []struct {
		name              string
		plain, controller phase
	}{
		{"create all", s.plain.create, s.controller.create},
		{"update all", s.plain.update, s.controller.update},
		{"delete all", s.plain.remove, s.controller.remove},
		{fmt.Sprintf("%d changes within %s, beside one", burstChanges, (burstChanges-1)*burstInterval), s.plain.update, s.burst},
	} {
		fmt.Fprintf(table, "%s\t%s\t%s\t%.2f ×\t%s\t%s\n", row.name, seconds(row.plain.took), seconds(row.controller.took),
			float64(row.controller.took)/float64(row.plain.took), s.each(row.controller.writes), s.each(row.controller.reads))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "At rest for %s: %d writes, %d reads. The controller's resident memory at its peak: %s.\n", o.rest, s.rest.writes, s.rest.reads, megabytes(s.memory))
	return err
}

// reportMemory prints the memory of programs as a table.
func reportMemory(w io.Writer, m memoryResult) error {
	fmt.Fprintf(w, "\nMemory and start-up beside Secrets of %d KB that have nothing to do with it\n\n", unrelatedBytes/1000)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tunrelated Secrets\tresident memory at its peak\tuntil the caches have synced")
	for _, row := range []struct {
		name  string
		count int
		cost  cost
	}{{"controller", 0, m.before}, {"controller", m.unrelated, m.after}, {"naive program, which caches all Secrets", m.unrelated, m.naive}} {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", row.name, row.count, megabytes(row.cost.memory), seconds(row.cost.start))
	}
	return table.Flush()
}

func (s size) each(count int) string { return fmt.Sprintf("%.2f", float64(count)/float64(s.copies())) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func megabytes(bytes uint64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/1e6) }

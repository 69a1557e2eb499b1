package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// reportSize prints what was measured with one size as a table.
func reportSize(w io.Writer, o options, s sizeResult) error {
	fmt.Fprintf(w, "\n%d × %d = %d copies of %d bytes, %d workers\n\n", s.sources, s.namespaces, s.copies(), o.bytes, o.workers)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tplain client\tits watches\tcontroller\tbeside it\tbeside it with watches\twrites per copy\treads per copy")
	row := func(name string, plain, watching, controller func(round) phase) {
		took := func(of func(round) phase) string {
			return fmt.Sprintf("%.2f s", s.median(func(r round) float64 { return of(r).took.Seconds() }))
		}
		ratio := func(of, to func(round) phase) string {
			return s.ratio(func(r round) float64 { return of(r).took.Seconds() / to(r).took.Seconds() })
		}
		each := func(count func(phase) int) string {
			return fmt.Sprintf("%.2f", s.median(func(r round) float64 { return float64(count(controller(r))) / float64(s.copies()) }))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, took(plain), ratio(watching, plain), took(controller),
			ratio(controller, plain), ratio(controller, watching),
			each(func(p phase) int { return p.writes }), each(func(p phase) int { return p.reads }))
	}
	plain := func(of func(lifecycle) phase) func(round) phase {
		return func(r round) phase { return of(r.plain) }
	}
	watching := func(of func(lifecycle) phase) func(round) phase {
		return func(r round) phase { return of(r.watching) }
	}
	for _, p := range phases {
		row(p.title, plain(p.of), watching(p.of), func(r round) phase { return p.of(r.controller) })
	}
	update := func(l lifecycle) phase { return l.update }
	row(fmt.Sprintf("%d changes within %s, beside one", burstChanges, (burstChanges-1)*burstInterval),
		plain(update), watching(update), func(r round) phase { return r.burst })
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Medians of %d rounds; ratios within a round, with their range. \"Its watches\" is a plain client that keeps the controller's watches, beside one that does not.\n"+
		"At rest for %s: %d writes, %d reads. The controller's resident memory at its peak: %s.\n",
		len(s.rounds), o.rest, s.rest.writes, s.rest.reads, megabytes(uint64(s.median(func(r round) float64 { return float64(r.memory) }))))
	if err != nil || o.replicator == "" {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintln(table, "\tkubernetes-replicator\tcontroller\tbeside it")
	for _, panel := range phases {
		peer := func(r round) float64 { return panel.of(r.peer).took.Seconds() }
		ours := func(r round) float64 { return panel.of(r.controller).took.Seconds() }
		fmt.Fprintf(table, "%s\t%.2f s\t%.2f s\t%s\n", panel.title, s.median(peer), s.median(ours), s.ratio(func(r round) float64 { return ours(r) / peer(r) }))
	}
	peer := func(r round) float64 { return float64(r.peerMemory) }
	ours := func(r round) float64 { return float64(r.memory) }
	fmt.Fprintf(table, "resident memory at its peak\t%s\t%s\t%s\n", megabytes(uint64(s.median(peer))), megabytes(uint64(s.median(ours))), s.ratio(func(r round) float64 { return ours(r) / peer(r) }))
	return table.Flush()
}

// median returns the median of a number over the rounds.
func (s sizeResult) median(of func(round) float64) float64 {
	var all []float64
	for _, r := range s.rounds {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// ratio returns the median of a ratio over the rounds, and if there are several, its range.
func (s sizeResult) ratio(of func(round) float64) string {
	text := fmt.Sprintf("%.2f ×", s.median(of))
	if len(s.rounds) == 1 {
		return text
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range s.rounds {
		low, high = min(low, of(r)), max(high, of(r))
	}
	return fmt.Sprintf("%s (%.2f – %.2f)", text, low, high)
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

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func megabytes(bytes uint64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/1e6) }

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// summary is the statistics that the tables show of a series of numbers.
type summary struct{ median, min, max float64 }

// summarize returns the summary of one or more numbers. The median of an even count is halfway between the middle two.
func summarize(numbers []float64) summary {
	sorted := slices.Sorted(slices.Values(numbers))
	count := len(sorted)
	return summary{
		median: (sorted[(count-1)/2] + sorted[count/2]) / 2,
		min:    sorted[0],
		max:    sorted[count-1],
	}
}

// each returns a number of each measurement.
func each[T any](measured []T, of func(T) float64) (numbers []float64) {
	for _, m := range measured {
		numbers = append(numbers, of(m))
	}
	return numbers
}

// measure is a row of a table.
type measure[T any] struct {
	name   string
	of     func(T) float64
	format func(float64) string
	panel  string // the title of its panel, or "" if it is not drawn
}

// column is one of the two sides that a table compares.
type column[T any] struct {
	name     string
	measured []T
}

// bootMeasures are the rows of the table of boots.
var bootMeasures = []measure[boot]{
	{"start to /readyz ok", func(b boot) float64 { return b.ready.Seconds() }, seconds, ""},
	{fmt.Sprintf("start to %d Pods Running on %d nodes", pods, nodes), func(b boot) float64 { return b.running.Seconds() }, seconds, ""},
	{"processor time until then", func(b boot) float64 { return b.cpu.Seconds() }, seconds, ""},
	{"resident memory", func(b boot) float64 { return float64(b.resident) }, mebibytes, ""},
	{"anonymous memory", func(b boot) float64 { return float64(b.anonymous) }, mebibytes, ""},
	{"processor time per idle minute", func(b boot) float64 { return b.idle.Seconds() }, seconds, ""},
}

func seconds(s float64) string   { return fmt.Sprintf("%.2f s", s) }
func mebibytes(b float64) string { return fmt.Sprintf("%.0f MiB", b/(1<<20)) }

// table prints a table. A row without a number of ours is left out. The ratio is that of the medians, ours to the other's.
func table[T any](w io.Writer, measures []measure[T], ours, other column[T]) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "median (range)\t%s\t%s\tratio\n", ours.name, other.name)
	for _, measure := range measures {
		cell := func(measured []T) (string, float64) {
			s := summarize(each(measured, measure.of))
			if s.max == 0 {
				return "–", 0
			}
			return fmt.Sprintf("%s (%s – %s)", measure.format(s.median), measure.format(s.min), measure.format(s.max)), s.median
		}
		left, ourMedian := cell(ours.measured)
		right, otherMedian := cell(other.measured)
		ratio := "–"
		switch {
		case ourMedian == 0:
			continue
		case otherMedian != 0:
			ratio = fmt.Sprintf("%.2f", ourMedian/otherMedian)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", measure.name, left, right, ratio)
	}
	return table.Flush()
}

// report prints the table of boots.
func report(w io.Writer, ours, other side) error {
	if err := table(w, bootMeasures, column[boot]{ours.name, ours.boots}, column[boot]{other.name, other.boots}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
A control plane is one process, with scheduler, controllers and nodes that run %d Pods; envtest is two, an
API server and an etcd with nothing in them. "Until then" is until all of that is there. Memory is measured
%.0f s later, and then the idle minutes. Memory that is not anonymous is the content of files, such as the
programs, which processes share and the system can drop.
`, pods, settle.Seconds())
	return err
}

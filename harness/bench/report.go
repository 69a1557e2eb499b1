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

// measures are the rows of the table of boots.
var measures = []struct {
	name   string
	of     func(boot) float64
	format func(float64) string
	both   bool // measured for envtest as well
}{
	{"start to /readyz ok", func(b boot) float64 { return b.ready.Seconds() }, seconds, true},
	{fmt.Sprintf("start to %d Pods Running on %d nodes", pods, nodes), func(b boot) float64 { return b.running.Seconds() }, seconds, false},
	{"resident memory *", func(b boot) float64 { return float64(b.memory) }, mebibytes, true},
}

func seconds(s float64) string   { return fmt.Sprintf("%.2f s", s) }
func mebibytes(b float64) string { return fmt.Sprintf("%.0f MiB", b/(1<<20)) }

// report prints the table of boots.
func report(w io.Writer, ours, envtests []boot) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "median (range)\tours\tenvtest")
	for _, measure := range measures {
		cell := func(boots []boot) string {
			var numbers []float64
			for _, b := range boots {
				numbers = append(numbers, measure.of(b))
			}
			s := summarize(numbers)
			return fmt.Sprintf("%s (%s – %s)", measure.format(s.median), measure.format(s.min), measure.format(s.max))
		}
		other := "runs no Pods"
		if measure.both {
			other = cell(envtests)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", measure.name, cell(ours), other)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
To /readyz, envtest takes %.1f times as long as ours (ratio of the medians).
* Ours: one process, with scheduler, controllers and nodes, when the Pods run. envtest: its two
  processes together, with nothing in them, when its Start has returned.
`, medianReady(envtests)/medianReady(ours))
	return err
}

// medianReady returns the median time until /readyz returns ok, in seconds.
func medianReady(boots []boot) float64 {
	var numbers []float64
	for _, b := range boots {
		numbers = append(numbers, b.ready.Seconds())
	}
	return summarize(numbers).median
}

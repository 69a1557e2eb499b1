package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func slowestCommand() *cobra.Command {
	var count int
	cmd := &cobra.Command{
		Use:    "slowest FILE",
		Hidden: true, // it is for the Makefile
		Short:  "Print the slowest tests of a run, and how many tests there were",
		Long: `Print the slowest tests of a run, and how many tests passed, failed and were skipped. FILE is the
output of "go test -json". Tests whose results came from the cache are counted, but not listed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			return writeSlowest(os.Stdout, file, count)
		},
	}
	cmd.Flags().IntVar(&count, "count", 10, "how many tests to print")
	return cmd
}

// testEvent is a line of "go test -json"; see "go doc test2json".
type testEvent struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

func writeSlowest(out io.Writer, events io.Reader, count int) error {
	counts := map[string]int{}
	cached := map[string]bool{} // packages
	var all []testEvent
	decoder := json.NewDecoder(events)
	for {
		var e testEvent
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read the results of the tests: %w", err)
		}
		isEnd := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"
		switch {
		case e.Test == "" && e.Action == "output" && strings.Contains(e.Output, "\t(cached)"):
			cached[e.Package] = true
		case e.Test != "" && isEnd:
			counts[e.Action]++
			if !strings.Contains(e.Test, "/") { // a subtest's time is part of its test's
				all = append(all, e)
			}
		}
	}
	all = slices.DeleteFunc(all, func(e testEvent) bool { return cached[e.Package] || e.Action == "skip" })
	slices.SortStableFunc(all, func(a, b testEvent) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	if len(all) > 0 {
		fmt.Fprintln(out, "\nThe slowest tests:")
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, e := range all[:min(count, len(all))] {
		fmt.Fprintf(table, "%.1fs\t  %s %s\n", e.Elapsed, path.Join(path.Base(path.Dir(e.Package)), path.Base(e.Package)), e.Test)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", counts["pass"], counts["fail"], counts["skip"])
	return err
}

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

	"example.com/controllers/harness/suite"
)

func slowestCommand() *cobra.Command {
	var s summary
	cmd := &cobra.Command{
		Use:    "slowest FILE...",
		Hidden: true, // it is for the Makefile
		Short:  "Print the slowest tests of a run, and how many tests there were",
		Long: `Print the slowest tests of a run, and how many tests passed, failed and were skipped. Each FILE is the
output of "go test -json". Tests whose results came from the cache are counted, but not listed. A test in several
files counts once: it has failed if it failed in one of them, and was skipped if it was skipped in all. With
several files, it is an error if a test was skipped in all because another was to run it (package suite).`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var results results
			for _, name := range args {
				if err := results.readFile(name); err != nil {
					return err
				}
			}
			if err := s.write(os.Stdout, &results); err != nil || len(args) == 1 {
				return err
			}
			return results.requireNoneLost()
		},
	}
	cmd.Flags().IntVar(&s.slowest, "count", 10, "how many tests to print")
	cmd.Flags().StringVar(&s.ran, "ran", "", "what was run besides, to be printed before the counts")
	cmd.Flags().StringVar(&s.left, "left", "", "what was left to \"make test-all\" besides the tests that were skipped for it")
	return cmd
}

// testEvent is a line of "go test -json"; see "go doc test2json".
type testEvent struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// results are the results of tests.
type results struct {
	tests map[testName]*result
	order []testName // as the tests ended first
}

type testName struct{ pkg, test string }

type result struct {
	action  string  // how it ended: "pass", "fail" or "skip"
	elapsed float64 // the longest, in seconds; 0 if it came from the cache
	left    bool    // it was skipped, and left to "make test-all"
	once    bool    // it was skipped, because "make test" had run it
}

// outcomes are the ways in which a test ends. Of several, the last counts.
var outcomes = []string{"skip", "pass", "fail"}

func (r *results) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return r.read(file)
}

// read adds the results of one run.
func (r *results) read(events io.Reader) error {
	cached := map[string]bool{} // packages
	left, once := map[testName]bool{}, map[testName]bool{}
	var ends []testEvent
	decoder := json.NewDecoder(events)
	for {
		var e testEvent
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read the results of the tests: %w", err)
		}
		switch {
		case e.Action == "output" && e.Test == "" && strings.Contains(e.Output, "\t(cached)"):
			cached[e.Package] = true
		case e.Action == "output" && strings.Contains(e.Output, suite.Left):
			left[testName{e.Package, e.Test}] = true
		case e.Action == "output" && strings.HasSuffix(e.Output, ": "+suite.Done+"\n"):
			once[testName{e.Package, e.Test}] = true
		case e.Test != "" && slices.Contains(outcomes, e.Action):
			ends = append(ends, e)
		}
	}
	if r.tests == nil {
		r.tests = map[testName]*result{}
	}
	for _, e := range ends {
		name := testName{e.Package, e.Test}
		known := r.tests[name]
		if known == nil {
			known = &result{action: e.Action}
			r.tests[name] = known
			r.order = append(r.order, name)
		}
		if slices.Index(outcomes, e.Action) > slices.Index(outcomes, known.action) {
			known.action = e.Action
		}
		known.left = known.action == "skip" && (known.left || left[name])
		known.once = known.action == "skip" && (known.once || once[name])
		if !cached[e.Package] {
			known.elapsed = max(known.elapsed, e.Elapsed)
		}
	}
	return nil
}

// requireNoneLost returns an error if a test was skipped in all runs, because it was left to one that skipped it as well.
func (r *results) requireNoneLost() error {
	var lost []string
	for _, name := range r.order {
		if result := r.tests[name]; result.left || result.once {
			lost = append(lost, name.pkg+" "+name.test)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("neither make test nor make test-rest has run %s; see package suite", strings.Join(lost, ", "))
}

// summary says what is printed of results.
type summary struct {
	slowest   int
	ran, left string
}

func (s summary) write(out io.Writer, r *results) error {
	counts := map[string]int{}
	left := 0
	var slowest []testName
	for _, name := range r.order {
		result := r.tests[name]
		counts[result.action]++
		if result.left {
			left++
		}
		if result.action != "skip" && result.elapsed > 0 && !strings.Contains(name.test, "/") { // a subtest's time is part of its test's
			slowest = append(slowest, name)
		}
	}
	slices.SortStableFunc(slowest, func(a, b testName) int { return cmp.Compare(r.tests[b].elapsed, r.tests[a].elapsed) })
	if len(slowest) > 0 {
		fmt.Fprintln(out, "\nThe slowest tests:")
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range slowest[:min(s.slowest, len(slowest))] {
		fmt.Fprintf(table, "%.1fs\t  %s %s\n", r.tests[name].elapsed, path.Join(path.Base(path.Dir(name.pkg)), path.Base(name.pkg)), name.test)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if s.ran != "" {
		fmt.Fprintf(out, "\nRun: %s.\n", s.ran)
	}
	if s.left != "" {
		tests := "tests"
		if left == 1 {
			tests = "test"
		}
		fmt.Fprintf(out, "Left to make test-all: %s; %d %s of the packages that were run.\n", s.left, left, tests)
	}
	_, err := fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", counts["pass"], counts["fail"], counts["skip"])
	return err
}

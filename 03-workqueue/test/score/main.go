// Program score compares lessons 1 to 3: which requests each makes, how long each takes to apply a change, and how many
// changes it loses. It writes the numbers as a table and as a chart.
//
// The lessons' programs run unmodified, each in its own namespace and behind its own recording proxy. They run at the
// same time and on one control plane, so that other load on the machine affects all of them. A step of the scenario
// begins when all lessons have completed the previous one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/proc"
)

func main() {
	guard.Main()
	proc.Main("score", run)
}

// options are the flags.
type options struct {
	pods    int
	changes int
	quiet   time.Duration
	growth  sizes
	window  time.Duration // how long each size of growth is measured
	out     string        // directory; "" for the docs of the repository
}

const (
	mostPods    = 500              // of each frontend of the scenario
	mostSize    = 5000             // of growth; more has not been tried on one control plane
	longest     = 50 * time.Minute // of the scenario: the tokens of the ServiceAccounts expire after an hour
	longestRest = 30 * time.Minute
)

// parse parses the flags. Its error says in one sentence what to change.
func parse(args []string) (options, error) {
	o := options{growth: sizes{10, 100, 1000}}
	flags := flag.NewFlagSet("score", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	flags.IntVar(&o.pods, "pods", 30, "`number` of Pods of each lesson's frontend, at least 2")
	flags.IntVar(&o.changes, "changes", 5, "`number` of plain changes of the config, at least 1; one with a refused deletion and one with a restart are added")
	flags.DurationVar(&o.quiet, "quiet", time.Minute, "`duration` for which the idle lessons are measured, such as 60s")
	flags.Var(&o.growth, "growth", "`numbers` of Pods with which the idle lessons are measured, in ascending order")
	flags.DurationVar(&o.window, "window", 80*time.Second, "`duration` for which each of these sizes is measured; a watch is sent a bookmark every 60 to 75 seconds")
	flags.StringVar(&o.out, "out", "", "`directory` for score.md and score.svg (default: the docs of this repository)")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stderr)
		flags.Usage()
		return o, err
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; --help lists the flags", flags.Arg(0))
	}
	return o, o.validate()
}

func (o options) validate() error {
	switch {
	case o.pods < 2 || o.pods > mostPods:
		return fmt.Errorf("--pods is %d; it must be from 2 (because the second deletion is refused) to %d", o.pods, mostPods)
	case o.changes < 1:
		return fmt.Errorf("--changes is %d; it must be at least 1", o.changes)
	case o.quiet < time.Second || o.quiet > longestRest:
		return fmt.Errorf("--quiet is %s; it must be from 1s to %s", o.quiet, longestRest)
	case o.window < time.Second || o.window > longestRest:
		return fmt.Errorf("--window is %s; it must be from 1s to %s", o.window, longestRest)
	case o.scenario() > longest:
		return fmt.Errorf("with --pods %d, --changes %d and --quiet %s, the scenario takes about %s; the limit is %s",
			o.pods, o.changes, o.quiet, o.scenario().Round(time.Minute), longest)
	}
	return nil
}

// sizes are numbers of Pods in ascending order.
type sizes []int

// String implements flag.Value.
func (s *sizes) String() string {
	var words []string
	for _, size := range *s {
		words = append(words, strconv.Itoa(size))
	}
	return strings.Join(words, ",")
}

// Set implements flag.Value.
func (s *sizes) Set(text string) error {
	*s = nil
	last := 0
	for word := range strings.SplitSeq(text, ",") {
		size, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || size <= last || size > mostSize {
			return fmt.Errorf("it must be a comma-separated list of ascending numbers from 1 to %d, such as 10,100,1000", mostSize)
		}
		*s = append(*s, size)
		last = size
	}
	return nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	root, err := cluster.Root(ctx)
	if err != nil {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join(root, "docs")
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("create the directory of --out: %w", err)
	}
	measured, err := measure(ctx, o, root, os.Stderr)
	if err != nil {
		return err
	}
	table, picture := markdown(measured), picture(measured)
	if err := errors.Join(
		write(filepath.Join(o.out, "score.md"), table),
		write(filepath.Join(o.out, "score.svg"), picture),
	); err != nil {
		return err
	}
	fmt.Print(table)
	fmt.Fprintf(os.Stderr, "score: written to score.md and score.svg in %s\n", o.out)
	return nil
}

// write replaces a file atomically, so that an interrupted run leaves the old one intact.
func write(path, text string) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(file.Name())))
		}
	}()
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

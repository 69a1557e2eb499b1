// Program score measures lessons 1 to 3 side by side: what each asks of the API server, how long a change
// takes with it, and how many changes it loses. It writes the numbers as a table and as a picture.
//
// The lessons' programs run unmodified, each in a namespace and behind a recording proxy of its own, all at
// the same time on one control plane, so that whatever else the machine does falls on all of them. Each
// step of the scenario begins when all are done with the one before.
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
	window  time.Duration // of each size of the growth
	out     string        // directory; "" for docs of the repository
}

const (
	mostPods    = 500              // of each frontend of the scenario
	mostSize    = 5000             // of the growth; what more would do to one control plane has not been tried
	longest     = 50 * time.Minute // of the scenario: the ServiceAccounts' tokens are good for an hour
	longestRest = 30 * time.Minute
)

// parse reads the flags. Its error says in a sentence what to write differently.
func parse(args []string) (options, error) {
	o := options{growth: sizes{10, 100, 1000}}
	flags := flag.NewFlagSet("score", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // what is wrong is said once, by main
	flags.IntVar(&o.pods, "pods", 30, "how `many` Pods the frontend of each lesson has, 2 or more")
	flags.IntVar(&o.changes, "changes", 5, "how `many` plain changes of its config there are, 1 or more; one with a refusal and one with a restart are added")
	flags.DurationVar(&o.quiet, "quiet", time.Minute, "how `long` to look at each lesson at rest, such as 60s")
	flags.Var(&o.growth, "growth", "how many Pods there are, one `size` after the other, to see how the cost of a rest grows")
	flags.DurationVar(&o.window, "window", 80*time.Second, "how `long` to look at each of these sizes; a watch is sent something every 60 to 75 seconds")
	flags.StringVar(&o.out, "out", "", "`directory` to write score.md and score.svg to (default: docs of this repository)")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stderr)
		flags.Usage()
		return o, err
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("there is no argument %q; --help lists the flags", flags.Arg(0))
	}
	return o, o.validate()
}

func (o options) validate() error {
	switch {
	case o.pods < 2 || o.pods > mostPods:
		return fmt.Errorf("--pods is %d; it must be from 2, because the second deletion is refused, to %d", o.pods, mostPods)
	case o.changes < 1:
		return fmt.Errorf("--changes is %d; it must be 1 or more", o.changes)
	case o.quiet < time.Second || o.quiet > longestRest:
		return fmt.Errorf("--quiet is %s; it must be from 1s to %s", o.quiet, longestRest)
	case o.window < time.Second || o.window > longestRest:
		return fmt.Errorf("--window is %s; it must be from 1s to %s", o.window, longestRest)
	case o.scenario() > longest:
		return fmt.Errorf("with --pods %d, --changes %d and --quiet %s, the scenario takes about %s; it must not take more than %s",
			o.pods, o.changes, o.quiet, o.scenario().Round(time.Minute), longest)
	}
	return nil
}

// sizes are numbers of Pods, each larger than the one before.
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
			return fmt.Errorf("it must be numbers from 1 to %d with commas between them, each larger than the one before, such as 10,100,1000", mostSize)
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
		return fmt.Errorf("make the directory of --out: %w", err)
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

// write writes a file all at once, so that an interrupted run leaves the old one.
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

// Program bench measures what lesson 6's controller takes to create, update and delete the copies of Secrets in many
// namespaces, and compares that with a plain client that writes the same Secrets without any controller: the floor.
//
//   - Each size has a control plane of its own. In each round, the plain client writes first, then one that also keeps the
//     controller's watches, then the controller. All have the same number of workers, the same account, and no rate limit of
//     their own. kubernetes-replicator, if it is measured, has an administrator's rights.
//   - A phase ends when a watch of the benchmark's own has seen all copies in their final state.
//   - Requests are those that the API server counts itself (apiserver_request_total). Nothing is between the controller and
//     the API server.
//   - The controller is a process of its own, with the rights of its manifests.
//
// Memory is measured beside Secrets that are no business of the controller's, and compared with a program that caches
// all Secrets: the naive one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/proc"
)

func main() {
	guard.Main()
	klog.SetOutput(io.Discard) // errors that matter end the benchmark
	klog.LogToStderr(false)
	proc.Main("bench", run)
}

// options are the flags.
type options struct {
	sizes     sizes
	rounds    int
	workers   int
	bytes     int // of the data of each Secret
	rest      time.Duration
	unrelated int
	picture   string // path; "" for none

	replicator string // path of kubernetes-replicator; "" to leave it out
}

const (
	maxCopies    = 100_000 // more have not been tried
	maxBytes     = 512 << 10
	maxRest      = 30 * time.Minute
	maxUnrelated = 50_000

	unrelatedBytes = 100_000 // size of each unrelated Secret
)

// parse parses the flags. Its error names the flag and the values that it can have.
func parse(args []string) (options, error) {
	o := options{sizes: sizes{{1, 200}, {1, 2000}}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	flags.Var(&o.sizes, "sizes", "what to measure, one after the other: numbers of `SOURCESxNAMESPACES`, or none")
	flags.IntVar(&o.rounds, "rounds", 5, "`number` of times to measure each program, in alternation")
	flags.IntVar(&o.workers, "workers", 32, "`number` of workers, of the controller and of the plain client")
	flags.IntVar(&o.bytes, "bytes", 1024, "size of the data of each Secret")
	flags.DurationVar(&o.rest, "rest", 10*time.Second, "how long to measure the controller at rest")
	flags.IntVar(&o.unrelated, "unrelated", 3000, "`number` of unrelated Secrets, of 100 KB each, beside which memory is measured; 0 for none. 30,000 need 4 GB of disk, and 10 GB of memory")
	flags.StringVar(&o.picture, "picture", "", "`path` of an SVG to draw, of how the time grows with the number of copies")
	flags.StringVar(&o.replicator, "replicator", "", "`path` of a kubernetes-replicator to measure, too. Build it with \"config.QPS = -1\" in its main, or its rate limit is all that is measured")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stderr)
		flags.Usage()
		return o, err
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; --help lists the flags", flags.Arg(0))
	case o.rounds < 1:
		return o, fmt.Errorf("--rounds is %d; it must be at least 1", o.rounds)
	case o.workers < 1:
		return o, fmt.Errorf("--workers is %d; it must be at least 1", o.workers)
	case o.bytes < 0 || o.bytes > maxBytes:
		return o, fmt.Errorf("--bytes is %d; it must be from 0 to %d", o.bytes, maxBytes)
	case o.rest < time.Second || o.rest > maxRest:
		return o, fmt.Errorf("--rest is %s; it must be from 1s to %s", o.rest, maxRest)
	case o.unrelated < 0 || o.unrelated > maxUnrelated:
		return o, fmt.Errorf("--unrelated is %d; it must be from 0 to %d", o.unrelated, maxUnrelated)
	}
	return o, nil
}

// size is a number of sources, and of the namespaces that each of them is copied to.
type size struct{ sources, namespaces int }

func (s size) copies() int { return s.sources * s.namespaces }

// String implements [fmt.Stringer].
func (s size) String() string { return fmt.Sprintf("%dx%d", s.sources, s.namespaces) }

// sizes is a flag: sizes separated by commas.
type sizes []size

// String implements [flag.Value].
func (s *sizes) String() string {
	var words []string
	for _, size := range *s {
		words = append(words, size.String())
	}
	return strings.Join(words, ",")
}

// Set implements [flag.Value].
func (s *sizes) Set(text string) error {
	*s = nil
	if text == "" {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		before, after, _ := strings.Cut(strings.TrimSpace(word), "x")
		sources, err := strconv.Atoi(before)
		namespaces, err2 := strconv.Atoi(after)
		if err != nil || err2 != nil || sources < 1 || namespaces < 1 || sources > maxCopies/namespaces {
			return fmt.Errorf("it must be numbers of sources and namespaces, with at most %d copies, such as 1x2000,20x500", maxCopies)
		}
		*s = append(*s, size{sources, namespaces})
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
	measured, err := measure(ctx, o, root, os.Stdout, os.Stderr)
	if o.picture != "" && len(measured.sizes) == len(o.sizes) { // also if memory could not be measured
		err = errors.Join(err, os.WriteFile(o.picture, picture(measured.sizes), 0o666))
	}
	return err
}

// Program bench measures lesson 4's program: how long it takes until many Networks are Ready, and until they are
// gone, and what each of them costs the API server and Neutron.
//
// The program runs unmodified, with the rights that its manifests give it, and with its defaults but for the number
// of workers. Its way to the API server is recorded, and its calls to a Neutron in memory are counted.
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

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/proc"
)

func main() {
	guard.Main()
	proc.Main("bench", run)
}

// options are the flags.
type options struct {
	networks int
	workers  workers
	rest     time.Duration
}

const (
	mostNetworks = 10000 // more than that has not been tried
	longestRest  = 30 * time.Minute
)

// parse reads the flags. Its error says in a sentence what to write differently.
func parse(args []string) (options, error) {
	o := options{workers: workers{2, 8}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // what is wrong is said once, by main
	flags.IntVar(&o.networks, "networks", 1000, "how `many` Networks there are; 0 for no measurement")
	flags.Var(&o.workers, "workers", "how many workers the program has, one `number` after the other")
	flags.DurationVar(&o.rest, "rest", 10*time.Second, "how `long` to look at it when all is done, such as 10s")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stderr)
		flags.Usage()
		return o, err
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("there is no argument %q; --help lists the flags", flags.Arg(0))
	case o.networks < 0 || o.networks > mostNetworks:
		return o, fmt.Errorf("--networks is %d; it must be from 0 to %d", o.networks, mostNetworks)
	case o.rest < time.Second || o.rest > longestRest:
		return o, fmt.Errorf("--rest is %s; it must be from 1s to %s", o.rest, longestRest)
	}
	return o, nil
}

// workers are numbers of workers.
type workers []int

// String implements flag.Value.
func (w *workers) String() string {
	var words []string
	for _, number := range *w {
		words = append(words, strconv.Itoa(number))
	}
	return strings.Join(words, ",")
}

// Set implements flag.Value.
func (w *workers) Set(text string) error {
	*w = nil
	for word := range strings.SplitSeq(text, ",") {
		number, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || number < 1 {
			return errors.New("it must be numbers from 1 with commas between them, such as 2,8")
		}
		*w = append(*w, number)
	}
	return nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil || o.networks == 0 {
		return err
	}
	root, err := cluster.Root(ctx)
	if err != nil {
		return err
	}
	measured, err := measure(ctx, o, root, os.Stderr)
	if err != nil {
		return err
	}
	return report(os.Stdout, o, measured)
}

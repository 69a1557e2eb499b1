// Program bench measures lesson 4's controller: how long it takes until many Networks are ready, and until they are
// deleted, and how many requests to the API server and to Neutron each of them costs.
//
// The controller runs unmodified, with the rights of its manifests and with default flags but for the number of workers.
// Its requests to the API server are recorded, and those to a Neutron, in memory or a real one, are counted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
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
	networks numbers
	workers  numbers
	rest     time.Duration
	neutron  *url.URL // nil: one in memory
	picture  string   // path; "" for none
}

const (
	maxNetworks = 10000 // more have not been tried
	maxRest     = 30 * time.Minute
)

// parse parses the flags. Its error names the flag and the values that it can have.
func parse(args []string) (options, error) {
	o := options{networks: numbers{1000}, workers: numbers{2, 8}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	flags.Var(&o.networks, "networks", "`numbers` of Networks to measure with, one after the other")
	flags.Var(&o.workers, "workers", "`numbers` of workers to measure with, one after the other")
	flags.DurationVar(&o.rest, "rest", 10*time.Second, "how long to measure the controller at rest")
	flags.Func("neutron", "the `URL` of a Neutron without Keystone, to use instead of one in memory", func(text string) (err error) {
		if o.neutron, err = url.Parse(text); err != nil || o.neutron.Scheme != "http" || o.neutron.Host == "" {
			return errors.New("it must be like http://127.0.0.1:9696")
		}
		return nil
	})
	flags.StringVar(&o.picture, "picture", "", "`path` of an SVG to draw, of how the time grows with the number of Networks")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stderr)
		flags.Usage()
		return o, err
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; --help lists the flags", flags.Arg(0))
	case slices.Max(o.networks) > maxNetworks:
		return o, fmt.Errorf("--networks is %s; each must be from 1 to %d", &o.networks, maxNetworks)
	case o.rest < time.Second || o.rest > maxRest:
		return o, fmt.Errorf("--rest is %s; it must be from 1s to %s", o.rest, maxRest)
	}
	return o, nil
}

// numbers is a flag: numbers from 1, separated by commas.
type numbers []int

// String implements flag.Value.
func (n *numbers) String() string {
	var words []string
	for _, number := range *n {
		words = append(words, strconv.Itoa(number))
	}
	return strings.Join(words, ",")
}

// Set implements flag.Value.
func (n *numbers) Set(text string) error {
	*n = nil
	for word := range strings.SplitSeq(text, ",") {
		number, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || number < 1 {
			return errors.New("it must be numbers from 1, separated by commas, such as 2,8")
		}
		*n = append(*n, number)
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
	if err != nil || o.picture == "" {
		return err
	}
	return os.WriteFile(o.picture, picture(measured), 0o666)
}

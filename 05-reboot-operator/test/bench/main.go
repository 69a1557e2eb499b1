// Program bench measures lesson 5's controller and agents: what they write, read and use while the Nodes of a large
// cluster reboot, and what they cost at rest.
//
// The control plane and the controller are real. The controller is a process of its own with default flags but for
// --max-unavailable and --workers, and all of its requests go through the recording proxy. What is simulated:
//
//   - The Nodes are plain Node objects without Pods. The benchmark plays their kubelets: it renews their Leases, every 30
//     seconds instead of every 10, and reports Ready=False when a machine goes down and Ready=True with the new boot ID when
//     it is up again. These writes are not counted.
//   - The agents are the lesson's, each with its own watch and the rights of a Pod on its Node, but they all run in the
//     benchmark's process, and their Rebooter and BootIDSource are the benchmark's. They share TCP connections. Their
//     requests are counted where they leave the process. A reboot stops the agent and starts a new one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"example.com/controllers/harness/chart"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/proc"
)

func main() {
	guard.Main()
	klog.SetOutput(io.Discard) // thousands of agents log here; errors that matter end the benchmark
	klog.LogToStderr(false)
	proc.Main("bench", run)
}

// options are the flags.
type options struct {
	sizes          sizes
	picture        string // path; "" for none
	reboots        int    // of each size at most; 0 for all
	maxUnavailable int
	bootTime       time.Duration
	workers        int
	images         int
	rest           time.Duration
}

const (
	maxNodes    = 10000 // more have not been tried
	maxBootTime = 10 * time.Minute
	maxRest     = 30 * time.Minute
)

// parse parses the flags. Its error names the flag and the values that it can have.
func parse(args []string) (options, error) {
	o := options{sizes: sizes{5000}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	flags.Var(&o.sizes, "nodes", "`numbers` of Nodes to measure with, one after the other")
	flags.StringVar(&o.picture, "picture", "", "`path` of an SVG to draw, of how the controller's CPU time for a reboot grows with the number of Nodes")
	flags.IntVar(&o.reboots, "reboots", 0, "`number` of Nodes to reboot, at most; 0 for all")
	flags.IntVar(&o.maxUnavailable, "max-unavailable", 100, "the controller's --max-unavailable, a `number` of Nodes")
	flags.DurationVar(&o.bootTime, "boot-time", 10*time.Second, "how long a machine is down for a reboot")
	flags.IntVar(&o.workers, "workers", 10, "the controller's --workers")
	flags.IntVar(&o.images, "images", 50, "`number` of container images in the status of each Node; a kubelet reports up to 50")
	flags.DurationVar(&o.rest, "rest", time.Minute, "how long to measure at rest")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stderr)
		flags.Usage()
		return o, err
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; --help lists the flags", flags.Arg(0))
	case slices.Max(o.sizes) > maxNodes:
		return o, fmt.Errorf("--nodes is %s; each must be from 1 to %d", &o.sizes, maxNodes)
	case o.reboots < 0:
		return o, fmt.Errorf("--reboots is %d; it must be 0 or more", o.reboots)
	case o.maxUnavailable < 1:
		return o, fmt.Errorf("--max-unavailable is %d; it must be at least 1", o.maxUnavailable)
	case o.bootTime < time.Second || o.bootTime > maxBootTime:
		return o, fmt.Errorf("--boot-time is %s; it must be from 1s to %s", o.bootTime, maxBootTime)
	case o.workers < 1:
		return o, fmt.Errorf("--workers is %d; it must be at least 1", o.workers)
	case o.images < 0:
		return o, fmt.Errorf("--images is %d; it must be at least 0", o.images)
	case o.rest < time.Second || o.rest > maxRest:
		return o, fmt.Errorf("--rest is %s; it must be from 1s to %s", o.rest, maxRest)
	}
	return o, nil
}

// sizes is a flag: numbers of Nodes, separated by commas.
type sizes []int

// String implements flag.Value.
func (s *sizes) String() string {
	var words []string
	for _, nodes := range *s {
		words = append(words, strconv.Itoa(nodes))
	}
	return strings.Join(words, ",")
}

// Set implements flag.Value.
func (s *sizes) Set(text string) error {
	*s = nil
	for word := range strings.SplitSeq(text, ",") {
		nodes, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || nodes < 1 {
			return errors.New("it must be numbers from 1, separated by commas, such as 500,5000")
		}
		*s = append(*s, nodes)
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
	var all []result
	for _, nodes := range o.sizes {
		r, err := measure(ctx, o, nodes, root, os.Stderr)
		if err != nil {
			return err
		}
		if err := report(os.Stdout, o, r); err != nil {
			return err
		}
		all = append(all, r)
	}
	if o.picture == "" {
		return nil
	}
	return os.WriteFile(o.picture, picture(all), 0o666)
}

// picture returns an SVG of the controller's CPU time for each reboot, by the number of Nodes.
func picture(all []result) []byte {
	var line chart.Line
	for _, r := range all {
		line.Points = append(line.Points, chart.Point{X: float64(r.nodes), Y: r.cpuPerReboot()})
	}
	return chart.Chart{Title: "The controller's processor time for each reboot", X: "Nodes", Unit: "ms",
		Panels: []chart.Panel{{Title: "processor time for each reboot", Lines: []chart.Line{line}}}}.SVG()
}

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
	"time"

	"k8s.io/klog/v2"

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
	nodes          int
	reboots        int // at most nodes
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
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	flags.IntVar(&o.nodes, "nodes", 5000, "`number` of Nodes; 0 measures nothing")
	flags.IntVar(&o.reboots, "reboots", 0, "`number` of Nodes to reboot; 0 for all")
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
	case o.nodes < 0 || o.nodes > maxNodes:
		return o, fmt.Errorf("--nodes is %d; it must be from 0 to %d", o.nodes, maxNodes)
	case o.reboots < 0 || o.reboots > o.nodes:
		return o, fmt.Errorf("--reboots is %d; it must be from 0 to --nodes, which is %d", o.reboots, o.nodes)
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
	if o.reboots == 0 {
		o.reboots = o.nodes
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil || o.nodes == 0 {
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

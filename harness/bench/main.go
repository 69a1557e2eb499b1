// Program bench measures what the workshop's own parts cost, each side by side with what would be there
// without them.
//
//   - Boots of the control plane, and those of envtest: the kube-apiserver and etcd, as two processes, that
//     controllers are commonly tested with. Both are built from the same modules.
//   - Requests and watches through the recording proxy, and without it.
//
// The two sides alternate within one run, so that whatever else the machine does falls on both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/proc"
)

func main() {
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // not the global one, which controller-runtime adds to
	var o options
	flags.IntVar(&o.boots, "boots", 10, "how `many` boots to measure of ours and of envtest's each; 0 for none")
	flags.IntVar(&o.requests, "requests", 1000, "how `many` requests of each kind to measure through the proxy and without it; 0 for none")
	flags.IntVar(&o.events, "events", 5000, "how `many` events a watch is sent through the proxy and without it; 0 for none")
	_ = flags.Parse(os.Args[1:]) // it exits on an error
	ctx := proc.Context()
	err := run(ctx, o, flags.Args())
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "bench: interrupted; everything it started has been stopped")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// boot is what was measured of one.
type boot struct {
	ready   time.Duration // from the start until /readyz says ok
	running time.Duration // from the start until all Pods are Running; 0 where nothing runs Pods
	memory  uint64        // resident, of all processes, in bytes, at the last of these moments
}

// bootLimit is a bound on one boot, which takes seconds.
const bootLimit = 2 * time.Minute

// options are the flags.
type options struct{ boots, requests, events int }

// mostEvents is what the API server keeps of what has changed, for watches that begin earlier.
const mostEvents = 50000

func run(ctx context.Context, o options, rest []string) error {
	for flag, value := range map[string]int{"boots": o.boots, "requests": o.requests, "events": o.events} {
		if value < 0 {
			return fmt.Errorf("--%s is %d; it must be 0 or more", flag, value)
		}
	}
	switch {
	case o.events > mostEvents:
		return fmt.Errorf("--events is %d; it must be %d or less, because the API server keeps no more", o.events, mostEvents)
	case len(rest) > 0:
		return fmt.Errorf("there is no argument %q; the flags are --boots, --requests and --events", rest[0])
	}
	fmt.Printf("Kubernetes %s on %s/%s, %d CPUs\n", cluster.KubernetesVersion, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if o.boots > 0 {
		fmt.Printf("\n%d boots of each, alternating\n\n", o.boots)
		if err := benchBoots(ctx, o.boots); err != nil {
			return err
		}
	}
	if o.requests+o.events > 0 {
		fmt.Printf("\n%d requests of each kind, and watches of %d events, alternating\n\n", o.requests, o.events)
		return benchProxy(ctx, o.requests, o.events, os.Stdout)
	}
	return nil
}

// benchBoots measures boots of both kinds, and prints what came of it.
func benchBoots(ctx context.Context, boots int) (err error) {
	programs, err := build(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "workshop-bench-")
	if err != nil {
		return fmt.Errorf("make a directory for the boots: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// What envtest has to say comes back as an error; without this, it complains that nobody listens.
	ctrllog.SetLogger(logr.Discard())

	var ours, envtests []boot
	for i := range boots + 1 {
		// The first pair finds the binaries on the disk, the others in memory: it is not counted.
		label := fmt.Sprintf("boot %d of %d", i, boots)
		if i == 0 {
			label = "warm-up"
		}
		our, err := within(ctx, dir, label+", ours", programs.bootOurs)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: ours: ready in %s, Pods in %s, %s", label,
			seconds(our.ready.Seconds()), seconds(our.running.Seconds()), mebibytes(float64(our.memory)))
		envtest, err := within(ctx, dir, label+", envtest", programs.bootEnvtest)
		if err != nil {
			fmt.Fprintln(os.Stderr)
			return err
		}
		fmt.Fprintf(os.Stderr, "; envtest: ready in %s, %s\n", seconds(envtest.ready.Seconds()), mebibytes(float64(envtest.memory)))
		if i > 0 {
			ours, envtests = append(ours, our), append(envtests, envtest)
		}
	}
	return report(os.Stdout, ours, envtests)
}

// within does one boot, in a directory below dir that is gone afterwards.
func within(ctx context.Context, dir, label string, measure func(ctx context.Context, dir string) (boot, error)) (b boot, err error) {
	dir = filepath.Join(dir, "boot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return boot{}, fmt.Errorf("%s: %w", label, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit, fmt.Errorf("it took more than %s", bootLimit))
	defer cancel()
	if b, err = measure(ctx, dir); err != nil {
		return boot{}, fmt.Errorf("%s: %w", label, err)
	}
	return b, nil
}

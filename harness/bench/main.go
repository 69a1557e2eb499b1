// Program bench measures boots of the workshop's control plane, side by side with those of envtest: the
// kube-apiserver and etcd, as two processes, that controllers are commonly tested with.
//
// The two alternate within one run, on binaries of the same version built from the same modules, so
// that whatever else the machine does falls on both.
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
	boots := flags.Int("boots", 10, "how `many` boots to measure of ours and of envtest's each, 1 or more")
	_ = flags.Parse(os.Args[1:]) // it exits on an error
	ctx := proc.Context()
	err := run(ctx, *boots, flags.Args())
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

func run(ctx context.Context, boots int, rest []string) (err error) {
	if boots < 1 {
		return fmt.Errorf("--boots is %d; it must be 1 or more", boots)
	}
	if len(rest) > 0 {
		return fmt.Errorf("there is no argument %q; the only flag is --boots", rest[0])
	}
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
	fmt.Printf("Kubernetes %s on %s/%s, %d CPUs; %d boots of each, alternating\n\n",
		cluster.KubernetesVersion, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), boots)
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

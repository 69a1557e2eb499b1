// Command bench measures what parts of the workshop cost, in comparison with the alternative.
//
//   - Starting the control plane, compared with starting envtest: the kube-apiserver and etcd, as two processes, that
//     controllers are commonly tested with. All binaries are built from the same modules.
//   - The simulated kubelets, compared with KWOK's controller.
//   - Requests and watches through the recording proxy, compared with direct ones.
//
// The two sides alternate within one run, so that other load on the machine affects both.
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
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // not the global FlagSet, to which controller-runtime adds its own flags
	var o options
	flags.IntVar(&o.boots, "boots", 5, "how `many` times to start the control plane, and envtest; 0 skips the comparison")
	flags.DurationVar(&o.idle, "idle", 20*time.Second, "how `long` to measure each of them while it idles; 0 skips that")
	flags.StringVar(&o.beside, "beside", "", "the `path` of a control plane's program, such as one of another commit, to compare with instead of envtest")
	flags.IntVar(&o.requests, "requests", 1000, "how `many` requests of each kind to send through the proxy, and directly; 0 skips the comparison")
	flags.IntVar(&o.events, "events", 5000, "how `many` events to watch through the proxy, and directly; 0 skips the comparison")
	flags.Var(&o.kubelets, "kubelets", "`sizes`, such as 100x400,1000x4000: numbers of Nodes and of Pods, to compare our simulated kubelets and KWOK's with")
	flags.StringVar(&o.kwok, "kwok", "", "the `path` of KWOK's program kwok, for --kubelets")
	flags.StringVar(&o.picture, "picture", "", "the `path` of an SVG to draw, of how the times of --kubelets grow with the number of Nodes")
	flags.IntVar(&o.rounds, "rounds", 3, "how `many` times to measure each size of --kubelets")
	_ = flags.Parse(os.Args[1:]) // exits on an error
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

// boot holds the measurements of one start of a control plane.
type boot struct {
	ready   time.Duration // from the start until /readyz returns ok
	running time.Duration // from the start until all Pods are Running; 0 for envtest, which runs no Pods
	cpu     time.Duration // processor time of all processes together, until ready and running
	usage                 // of all processes together, when the boot has settled
}

// side is one of the two that are compared.
type side struct {
	name  string
	start func(ctx context.Context, dir string) (boot, error) // starts it in an empty directory, measures it, and stops it
	boots []boot
}

// usage is what processes use while nobody asks anything of them.
type usage struct {
	resident  uint64        // resident memory in bytes
	anonymous uint64        // the part of it that is not the content of files, such as the programs, in bytes
	idle      time.Duration // processor time per minute
}

// settle is how long after the start the measurement of usage begins: what the start leaves to do is done by then.
const settle = 15 * time.Second

// hangTimeout bounds what takes seconds: one boot, or one watch.
const hangTimeout = 2 * time.Minute

// options are the values of the flags.
type options struct {
	boots, requests, events int
	idle                    time.Duration
	beside                  string
	kubelets                sizes
	kwok, picture           string
	rounds                  int
}

// maxEvents is how many events the API server's watch cache may keep for watches that start at an earlier
// resourceVersion.
const maxEvents = 50000

func run(ctx context.Context, o options, rest []string) error {
	for flag, value := range map[string]int{"boots": o.boots, "requests": o.requests, "events": o.events} {
		if value < 0 {
			return fmt.Errorf("--%s is %d; it must be 0 or more", flag, value)
		}
	}
	switch {
	case o.idle < 0:
		return fmt.Errorf("--idle is %s; it must be 0 or more", o.idle)
	case o.beside != "" && !filepath.IsAbs(o.beside):
		return fmt.Errorf("--beside is %q; it must be an absolute path", o.beside)
	case o.events > maxEvents:
		return fmt.Errorf("--events is %d; it must be %d or less, because the API server keeps no more", o.events, maxEvents)
	case len(o.kubelets) > 0 && !filepath.IsAbs(o.kwok):
		return fmt.Errorf("--kwok is %q; it must be the absolute path of KWOK's program, for --kubelets", o.kwok)
	case len(o.kubelets) == 0 && o.picture != "":
		return errors.New("--picture draws --kubelets, which is missing")
	case o.rounds < 1:
		return fmt.Errorf("--rounds is %d; it must be 1 or more", o.rounds)
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; --help lists the flags", rest[0])
	}
	// envtest returns its failures as errors. Without this, controller-runtime complains that no logger is set.
	ctrllog.SetLogger(logr.Discard())
	fmt.Printf("Kubernetes %s on %s/%s, %d CPUs\n", cluster.KubernetesVersion, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if o.boots > 0 {
		fmt.Printf("\n%d boots of each, alternating\n\n", o.boots)
		if err := benchBoots(ctx, o); err != nil {
			return err
		}
	}
	if len(o.kubelets) > 0 {
		if err := benchKubelets(ctx, o); err != nil {
			return err
		}
	}
	if o.requests+o.events > 0 {
		fmt.Printf("\n%d requests of each kind, and watches of %d events, alternating\n\n", o.requests, o.events)
		return benchProxy(ctx, o.requests, o.events, os.Stdout)
	}
	return nil
}

// benchBoots starts the control plane and what it is compared with alternately, and prints a comparison.
func benchBoots(ctx context.Context, o options) (err error) {
	programs, err := build(ctx, o.beside == "")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "workshop-bench-")
	if err != nil {
		return fmt.Errorf("create a directory for the boots: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	ours := func(program string) func(context.Context, string) (boot, error) {
		return func(ctx context.Context, dir string) (boot, error) { return bootOurs(ctx, program, dir, o.idle) }
	}
	envtest := func(ctx context.Context, dir string) (boot, error) { return programs.bootEnvtest(ctx, dir, o.idle) }
	sides := []side{{name: "ours", start: ours(programs.controlPlane)}, {name: "envtest", start: envtest}}
	if o.beside != "" {
		sides[1] = side{name: "beside", start: ours(o.beside)}
	}
	for i := range o.boots + 1 {
		// The first pair reads the binaries from disk, the others from the page cache, so it does not count.
		label := fmt.Sprintf("boot %d of %d", i, o.boots)
		if i == 0 {
			label = "warm-up"
		}
		for k := range sides {
			label := label + ", " + sides[k].name
			b, err := measureBoot(ctx, dir, label, hangTimeout+settle+o.idle, sides[k].start)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%s: ready in %s, %s\n", label, seconds(b.ready.Seconds()), mebibytes(float64(b.resident)))
			if i > 0 {
				sides[k].boots = append(sides[k].boots, b)
			}
		}
	}
	return report(os.Stdout, sides[0], sides[1])
}

// measureBoot calls measure with an empty directory in dir, which it removes afterwards. Errors begin with label.
func measureBoot(ctx context.Context, dir, label string, timeout time.Duration, measure func(ctx context.Context, dir string) (boot, error)) (b boot, err error) {
	dir = filepath.Join(dir, "boot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return boot{}, fmt.Errorf("%s: %w", label, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took more than %s", timeout))
	defer cancel()
	if b, err = measure(ctx, dir); err != nil {
		return boot{}, fmt.Errorf("%s: %w", label, err)
	}
	return b, nil
}

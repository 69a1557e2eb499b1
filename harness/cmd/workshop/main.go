// Program workshop is the command behind the Makefile: it plays lessons, runs a cluster, checks exercises, and records a
// controller's requests and injects faults into them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/proc"
)

func main() {
	guard.Main()
	ctx := proc.Context()
	root := &cobra.Command{
		Use:   "workshop",
		Short: "A workshop on Kubernetes controllers: lessons, a cluster to play them on, and its tools",
		// After a failed lesson, the usage would not help.
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(lessonCommand(), upCommand(), downCommand(), statusCommand(), resetCommand(), envCommand(),
		nodeCommand(), runCommand(), proxyCommand(), billCommand(), requestsCommand(), tortureCommand(), tortureWorkerCommand(), mutantsCommand(), exercisesCommand(), imagesCommand(), kindDownCommand(), prefetchCommand(), bundleCommand(), slowestCommand())
	err := root.ExecuteContext(ctx)
	var status exitStatus
	switch {
	case errors.As(err, &status):
		os.Exit(int(status))
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "workshop: interrupted; everything it started has been stopped")
		if err != nil && !errors.Is(err, proc.ErrInterrupted) && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "workshop:", err)
		}
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "workshop:", err)
		os.Exit(1)
	}
}

// exitStatus is the error of a command that has already reported what is wrong.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// rerunUnderGuard runs this command again, with --guarded, under a guard.
func rerunUnderGuard(ctx context.Context) error {
	status, err := guard.Rerun(ctx, append([]string{os.Args[1], "--guarded"}, os.Args[2:]...)...)
	if err == nil && status != 0 {
		return exitStatus(status)
	}
	return err
}

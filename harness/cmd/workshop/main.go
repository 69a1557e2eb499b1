// Program workshop is the command behind the Makefile: it plays lessons, runs a cluster, checks exercises, and records a
// controller's requests and injects faults into them.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
		guessCommand(), nodeCommand(), runCommand(), proxyCommand(), billCommand(), requestsCommand(), viewCommand(), tortureCommand(), tortureWorkerCommand(), mutantsCommand(), exercisesCommand(), imagesCommand(), kindDownCommand(), prefetchCommand(), bundleCommand(), slowestCommand(), newCommand())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	err := root.ExecuteContext(ctx)
	status, text := ending(err, ctx.Err() != nil)
	fmt.Fprint(os.Stderr, text)
	os.Exit(status)
}

// flagError says what a flag with a wrong value must be, and not which function could not read it.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	kinds := map[string]string{"int": "a whole number", "int32": "a whole number", "float64": "a number", "bool": "true or false", "duration": "a duration, such as 30s or 5m"}
	flag := invalid.GetFlag()
	kind, ok := kinds[flag.Value.Type()]
	if !ok {
		return err
	}
	return fmt.Errorf("--%s is %q; it must be %s", flag.Name, invalid.GetValue(), kind)
}

// ending returns the exit status for a command's error, and what to print about it. An [exitStatus] in the error is the
// status, except that a 0 does not hide what went wrong besides. interrupted says that the command was told to stop.
func ending(err error, interrupted bool) (status int, text string) {
	var reported exitStatus
	isReported := errors.As(err, &reported)
	var left []error
	for _, part := range parts(err) {
		isStatus := errors.As(part, new(exitStatus))
		isInterrupt := interrupted && (errors.Is(part, proc.ErrInterrupted) || errors.Is(part, context.Canceled))
		if !isStatus && !isInterrupt {
			left = append(left, part)
		}
	}
	switch {
	case isReported:
		status = int(reported)
	case interrupted && len(left) > 0:
		status, text = 130, "workshop: interrupted\n"
	case interrupted:
		status, text = 130, "workshop: interrupted; everything it started has been stopped\n"
	}
	if len(left) > 0 {
		status = cmp.Or(status, 1)
		text += fmt.Sprintln("workshop:", errors.Join(left...))
	}
	return status, text
}

// parts returns the errors that [errors.Join] has joined: err alone, if it has not. An error of fmt.Errorf with several
// %w has a text of its own, and stays whole.
func parts(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	for _, part := range joined.Unwrap() {
		all = append(all, parts(part)...)
	}
	return all
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

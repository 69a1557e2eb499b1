package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/mutants"
	"example.com/controllers/harness/torture"
)

func mutantsCommand() *cobra.Command {
	var scenario, dir, only string
	var guarded bool
	o := mutants.Options{Progress: os.Stderr}
	cmd := &cobra.Command{
		Use:   "mutants --scenario FILE --mutants DIRECTORY",
		Short: "Put bugs into a scenario's controller, and check that torture finds them",
		Long: `Put bugs into the controller of a scenario, one at a time, and check that torture finds
them and gives the right verdict. The bugs are patches in a directory. A patch begins with
these lines, and an empty one:

  Bug: what is wrong
  Shows: when it shows
  Fault: one that shows it, as in "workshop proxy --fault"; tried first; may be left out
  Expect: the right verdicts, separated by commas

After Ctrl-C, the table lists the bugs that had been tried.

Exit status:
  0    every bug was found, with the right verdict
  1    a bug was not found, or something else failed; the output says what
  130  interrupted`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.AtOnce < 0 || o.Replays < 0 || o.MaxPlans < 0 {
				return errors.New("--at-once, --replay and --most must be 0 or more")
			}
			if o.Scenario, err = torture.Read(scenario); err != nil {
				return err
			}
			if o.Mutants, err = mutants.Read(dir, only); err != nil {
				return err
			}
			if !guarded {
				return rerunUnderGuard(cmd.Context())
			}
			guard.AwaitInterrupt()
			results, err := mutants.Run(cmd.Context(), o)
			return reportMutants(os.Stdout, results, len(o.Mutants), err, cmd.Context().Err() != nil)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&scenario, "scenario", "", "file of the scenario")
	flags.StringVar(&dir, "mutants", "", "directory of the patches")
	flags.StringVar(&only, "only", "", "names of patches, separated by commas; default: all")
	flags.IntVar(&o.AtOnce, "at-once", 0, "how many mutants to test at a time; 0: what the machine's processors and memory allow")
	flags.IntVar(&o.Replays, "replay", 0, "how many times the plan that finds a bug is run again, to see whether the verdict is the same")
	flags.IntVar(&o.MaxPlans, "most", 0, "how many plans a mutant has to survive to count as not found; 0: 200")
	flags.BoolVar(&o.Unaided, "unaided", false, "do not try first what the patches say, to see at which of all plans (column PLAN) each bug is found")
	flags.BoolVar(&guarded, "guarded", false, "")
	_ = flags.MarkHidden("guarded")
	_ = cmd.MarkFlagRequired("scenario")
	_ = cmd.MarkFlagRequired("mutants")
	return cmd
}

// reportMutants prints the results. If err ended the run early, they are those of some of the mutants.
func reportMutants(w io.Writer, results []mutants.Result, planned int, err error, interrupted bool) error {
	if err == nil {
		return mutants.Report(w, results)
	}
	if len(results) > 0 {
		_ = mutants.Report(w, results) // the table names what was not caught
	}
	if !interrupted {
		return err
	}
	fmt.Fprintf(w, "\ninterrupted: %d of %d mutants were tried\n", len(results), planned)
	return errors.Join(err, exitStatus(130)) // err may also say what could not be stopped
}

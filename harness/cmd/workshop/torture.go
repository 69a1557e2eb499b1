package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/torture"
)

// tortureFlags are the flags of "workshop torture".
type tortureFlags struct {
	scenario string
	faults   []string
	times    int
	seed     uint64
	seeds    int
	parallel int
	most     int
	nodes    int
	first    bool
	json     bool
	guarded  bool
}

func tortureCommand() *cobra.Command {
	var f tortureFlags
	cmd := &cobra.Command{
		Use:   "torture --scenario FILE [-- CONTROLLER [ARGUMENT]...]",
		Short: "Run a controller through a scenario, again and again, with everything going wrong once",
		Long: `Run a controller through a scenario, again and again, each time with something else going
wrong between it and the API server: errors, lost replies, broken watches, kills. In the
end it says what the controller did wrong, by cause, and how to replay it.

The controller may be any program. In its arguments, {kubeconfig} becomes the path of the
kubeconfig that it has to use, and {namespace} the namespace that the run is in. One that is
not told a namespace and asks for all, is told of that one alone.

  workshop torture --scenario torture.yaml -- ./my-controller --kubeconfig={kubeconfig} --namespace={namespace}

The scenario is a YAML file: manifests to apply, steps, when the job is done, what must
always hold, and what may differ from a run in which nothing goes wrong. It may also name
a Go program to build and run. Its fields are documented in harness/torture/scenario.go. The exit status is 1 if anything failed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !f.guarded {
				return rerunUnderGuard(cmd.Context())
			}
			return runTorture(cmd.Context(), f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.scenario, "scenario", "", "file of the scenario")
	flags.StringArrayVar(&f.faults, "fault", nil, "run only with this going wrong, as \"workshop proxy\" has it; may be given several times")
	flags.IntVar(&f.times, "times", 1, "how often to run that")
	flags.Uint64Var(&f.seed, "seed", 1, "first seed of --seeds")
	flags.IntVar(&f.seeds, "seeds", 0, "run so many plans of two or three faults each, drawn at random; 0: one plan for each possible fault")
	flags.IntVar(&f.most, "most", 0, "run so many plans at most, the first of each kind before the second; 0: all")
	flags.IntVar(&f.parallel, "parallel", 0, "how many runs at a time; 0: what the machine's processors and memory allow")
	flags.IntVar(&f.nodes, "nodes", 6, "number of simulated nodes")
	flags.BoolVar(&f.first, "first", false, "end with the first failure")
	flags.BoolVar(&f.json, "json", false, "print the report as JSON")
	flags.BoolVar(&f.guarded, "guarded", false, "")
	_ = flags.MarkHidden("guarded")
	_ = cmd.MarkFlagRequired("scenario")
	return cmd
}

func runTorture(ctx context.Context, f tortureFlags, command []string) error {
	switch {
	case f.times < 1 || f.seeds < 0 || f.parallel < 0 || f.most < 0 || f.nodes < 1:
		return errors.New("--times and --nodes must be 1 or more, --seeds, --most and --parallel 0 or more")
	case len(f.faults) > 0 && f.seeds > 0:
		return errors.New("give --fault or --seeds, not both")
	}
	scenario, err := torture.Read(f.scenario)
	if err != nil {
		return err
	}
	given := ""
	if len(command) > 0 {
		given = " -- " + strings.Join(command, " ")
	}
	commands := torture.Single(command...)
	if len(command) == 0 {
		if commands, err = scenario.Build(ctx, os.Stderr); err != nil {
			return err
		}
	}
	o := torture.Options{
		Scenario: scenario, Commands: commands, Replays: f.times, Seed: f.seed, Seeds: f.seeds, Parallel: f.parallel, MaxPlans: f.most,
		FirstOnly: f.first, Nodes: f.nodes, Progress: os.Stderr,
	}
	if o.Faults, err = parseFaults(f.faults); err != nil {
		return err
	}
	report, err := torture.Run(ctx, o)
	if err != nil {
		return err
	}
	if f.json {
		err = report.WriteJSON(os.Stdout)
	} else {
		err = report.WriteText(os.Stdout, func(p torture.Plan) string {
			return fmt.Sprintf("workshop torture --scenario %s %s%s", f.scenario, p, given)
		})
	}
	if err == nil && len(report.Failures()) > 0 {
		return exitStatus(1)
	}
	return err
}

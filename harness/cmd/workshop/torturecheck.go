package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/torture"
)

func tortureCheckCommand() *cobra.Command {
	var guarded bool
	var file string
	nodes := defaultNodes
	cmd := &cobra.Command{
		Use:   "check --scenario FILE [-- CONTROLLER [ARGUMENT]...]",
		Short: "Run a scenario once, without faults, and say what its rules saw",
		Long: `Run a scenario once, without faults, and say what its rules saw: which objects, and in which
states each rule did not hold. A rule that always holds waits for nothing, and one about
objects that never exist says nothing. It also says which kinds of fault cannot come.

  workshop torture check --scenario torture.yaml -- ./my-controller --kubeconfig={kubeconfig}

Exit status: 0 if the controller passed without faults, otherwise 1.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !guarded {
				return rerunUnderGuard(cmd.Context())
			}
			guard.AwaitInterrupt()
			if nodes < 1 {
				return errors.New("--nodes must be 1 or more")
			}
			scenario, err := torture.Read(file)
			if err != nil {
				return err
			}
			if scenario.Scope == "cluster" && cmd.Flags().Changed("nodes") {
				return fmt.Errorf("--nodes has no effect on a scenario with \"scope: cluster\"; leave it out, and set \"nodes\" in %s", file)
			}
			return runTortureCheck(cmd.Context(), scenario, nodes, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "scenario", "", "file of the scenario")
	flags.IntVar(&nodes, "nodes", defaultNodes, "number of simulated nodes; a scenario with \"scope: cluster\" has its own")
	flags.BoolVar(&guarded, "guarded", false, "")
	_ = flags.MarkHidden("guarded")
	_ = cmd.MarkFlagRequired("scenario")
	return cmd
}

func runTortureCheck(ctx context.Context, scenario *torture.Scenario, nodes int, args []string) (err error) {
	commands := torture.Single(args...)
	if len(args) == 0 {
		if commands, err = scenario.Build(ctx, os.Stderr); err != nil {
			return err
		}
	}
	lab, err := torture.Open(ctx, nodes, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	check, err := lab.Check(ctx, torture.Options{Scenario: scenario, Commands: commands, Nodes: nodes, Progress: os.Stderr})
	if err != nil {
		return err
	}
	if err := check.WriteText(os.Stdout); err != nil {
		return err
	}
	if check.Outcome.Verdict != torture.Passed {
		return exitStatus(1)
	}
	return nil
}

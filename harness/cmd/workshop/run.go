package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/proc"
)

func runCommand() *cobra.Command {
	var nodes int
	cmd := &cobra.Command{
		Use:   "run -- COMMAND [ARGUMENT]...",
		Short: "Run a command with a cluster of its own, and return its exit status",
		Long: `Run a command with a cluster of its own: KUBECONFIG names it, and kubectl is on the
PATH. When the command ends, the cluster is thrown away.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runWithCluster(cmd.Context(), nodes, args)
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 3, "number of simulated nodes")
	return cmd
}

func runWithCluster(ctx context.Context, nodes int, args []string) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Nodes: nodes, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), c.Env(c.Dir())...)
	cmd.Env = append(cmd.Env, cluster.SharedVariable+"="+c.Kubeconfig)
	proc.Group(cmd)
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &exit):
		return exitStatus(exit.ExitCode())
	case err != nil:
		return fmt.Errorf("run %s: %w", args[0], err)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/proc"
)

func runCommand() *cobra.Command {
	var nodes int
	var shared string
	var onKind kindFlags
	cmd := &cobra.Command{
		Use:   "run -- COMMAND [ARGUMENT]...",
		Short: "Run a command with a new cluster, and return the command's exit status",
		Long: `Run a command with a new cluster: KUBECONFIG points to it, and kubectl is on the PATH.
The cluster is deleted when the command ends. If standard input is a terminal, the command's is
empty; for a cluster to use from your own shell, see "workshop up".

With --shared LINK, the cluster is for Go tests. Go reuses a cached test result only if the environment is
the same. So LINK becomes a symbolic link to the cluster's directory, ` + cluster.SharedVariable + ` names the
kubeconfig below it, and the environment is the same in each run.

With --kind, it is a kind cluster of containers. One that --keep has left is used, and not deleted.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if onKind.enabled {
				return runOnKind(cmd.Context(), onKind, args)
			}
			return runWithCluster(cmd.Context(), nodes, shared, args)
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 3, "number of simulated nodes")
	cmd.Flags().StringVar(&shared, "shared", "", "symbolic link to create to the directory of a cluster that Go tests share")
	cmd.Flags().BoolVar(&onKind.enabled, "kind", false, "run it with a kind cluster, instead of a control plane with simulated nodes")
	cmd.Flags().IntVar(&onKind.workers, "workers", 3, "number of nodes of a new kind cluster, besides the control plane's")
	cmd.Flags().StringVar(&onKind.auditPolicy, "audit-policy", "", "`file` with the audit policy of a new kind cluster")
	cmd.Flags().BoolVar(&onKind.keep, "keep", false, "leave the kind cluster up at the end")
	return cmd
}

func runWithCluster(ctx context.Context, nodes int, shared string, args []string) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Nodes: nodes, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if shared == "" {
		cmd.Env = append(os.Environ(), c.Env(c.Dir())...)
		cmd.Env = append(cmd.Env, cluster.SharedVariable+"="+c.Kubeconfig, cluster.KubeconfigVariable+"="+c.Kubeconfig)
	} else {
		if cmd.Env, err = shareCluster(c, shared); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unshareCluster(c, shared)) }()
	}
	return runToEnd(ctx, cmd)
}

// runToEnd runs a command with our standard output, standard error and, unless it is a terminal, standard input. If the
// command fails, the error is its exit status. When ctx ends, every process of its group is ended.
func runToEnd(ctx context.Context, cmd *exec.Cmd) error {
	proc.Group(cmd)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// A process group of its own is in the background of the terminal, and the kernel stops it when it reads from there.
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		cmd.Stdin = os.Stdin
	}
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		proc.EndGroup(cmd)
		return context.Cause(ctx)
	case errors.As(err, &exit):
		return exitStatus(exit.ExitCode())
	case err != nil:
		return fmt.Errorf("run %s: %w", cmd.Args[0], err)
	}
	return nil
}

// shareCluster makes a symbolic link to the cluster's directory, and returns an environment for Go tests that use it. It
// replaces a link that was left by a run that was killed.
func shareCluster(c *cluster.Cluster, link string) ([]string, error) {
	link, err := filepath.Abs(link)
	if err != nil {
		return nil, err
	}
	if err := removeStaleLink(link); err != nil {
		return nil, err
	}
	if err := os.Symlink(filepath.Dir(c.Kubeconfig), link); err != nil {
		return nil, fmt.Errorf("link to the cluster for the tests: %w", err)
	}
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == proc.WatchVariable || name == "KUBECONFIG" || name == "MAKEFLAGS" || name == "MAKELEVEL"
	})
	return append(env, cluster.SharedVariable+"="+filepath.Join(link, filepath.Base(c.Kubeconfig))), nil
}

// removeStaleLink removes a link to the cluster of an earlier run, if there is one.
func removeStaleLink(link string) error {
	info, err := os.Lstat(link)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for the link to an earlier cluster: %w", err)
	case info.Mode().Type() != os.ModeSymlink:
		return fmt.Errorf("%s is not a symbolic link, so it was not replaced; give --shared another path", link)
	case cluster.IsUp(link):
		return fmt.Errorf("%s is in use by another run of the tests; wait until that has ended", link)
	}
	if err := os.Remove(link); err != nil {
		return fmt.Errorf("remove the link to an earlier cluster: %w", err)
	}
	return nil
}

// unshareCluster removes the link of [shareCluster], unless it points elsewhere by now.
func unshareCluster(c *cluster.Cluster, link string) error {
	if target, err := os.Readlink(link); err != nil || target != filepath.Dir(c.Kubeconfig) {
		return nil
	}
	return os.Remove(link)
}

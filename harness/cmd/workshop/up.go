package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/offline"
)

// upDir is where the cluster of "workshop up" keeps its state.
func upDir(root string) string { return filepath.Join(root, ".workshop", "up") }

func upCommand() *cobra.Command {
	var nodes int
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster that keeps running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withUpDir(cmd.Context(), func(ctx context.Context, dir string) error {
				start := time.Now()
				c, err := cluster.Up(ctx, cluster.Options{Nodes: nodes, Progress: os.Stderr}, dir)
				if errors.Is(err, cluster.ErrAlreadyUp) {
					return fmt.Errorf("%w; make status describes it, make down stops it", err)
				}
				if err != nil {
					return err
				}
				if cmd.Flags().Changed("nodes") && c.Nodes != nodes {
					fmt.Fprintf(os.Stderr, "the cluster continues as it was before, with %s; for one with %d, delete its state first: make reset\n", count(c.Nodes), nodes)
				}
				fmt.Printf("up: Kubernetes %s, %s, %s\nTo use it from this terminal:  eval \"$(make -s env)\"\n",
					c.Version, count(c.Nodes), time.Since(start).Round(100*time.Millisecond))
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 3, "number of simulated nodes of a new cluster")
	return cmd
}

// upDirCommand returns a command without flags and arguments, which calls run with the directory of that cluster.
func upDirCommand(use, short string, run func(ctx context.Context, dir string) error) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return withUpDir(cmd.Context(), run) },
	}
}

func downCommand() *cobra.Command {
	return upDirCommand("down", "Stop the cluster of \"workshop up\", and keep its state", func(ctx context.Context, dir string) error {
		if err := cluster.Down(ctx, dir); err != nil {
			return err
		}
		fmt.Println("down; make up starts it again as it was, make reset deletes its state")
		return nil
	})
}

func statusCommand() *cobra.Command {
	return upDirCommand("status", "Say whether the cluster of \"workshop up\" is running", func(ctx context.Context, dir string) error {
		c, err := findUp(ctx, dir)
		if err != nil {
			return err
		}
		fmt.Printf("up: Kubernetes %s, %s\nkubeconfig: %s\n", c.Version, count(c.Nodes), c.Kubeconfig)
		return nil
	})
}

func resetCommand() *cobra.Command {
	return upDirCommand("reset", "Stop the cluster of \"workshop up\", and delete its state", func(ctx context.Context, dir string) error {
		if err := cluster.Reset(ctx, dir); err != nil {
			return err
		}
		fmt.Println("reset; make up starts a new cluster")
		return nil
	})
}

func envCommand() *cobra.Command {
	cmd := upDirCommand("env", "Print shell commands that point a terminal at the cluster of \"workshop up\"", func(ctx context.Context, dir string) error {
		c, err := findUp(ctx, dir)
		if err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		root, err := cluster.Root(ctx)
		if err != nil {
			return err
		}
		path := c.Kubectl + string(os.PathListSeparator) + filepath.Dir(self)
		fmt.Printf("export KUBECONFIG=%s\nexport PATH=%s:\"$PATH\"\nexport %s=%s\n",
			quote(c.Kubeconfig), quote(path), cluster.RootVariable, quote(root))
		return printBundle(os.Stdout)
	})
	cmd.Long = `Print shell commands that point a terminal at the cluster of "workshop up": KUBECONFIG, and
a PATH with our kubectl and this command. ` + cluster.RootVariable + ` names the workshop's repository, so
that this command works in any directory: it builds the control plane from there.

  eval "$(make -s env)"`
	return cmd
}

// printBundle prints shell commands with which programs outside of make use the Go and the modules of an unpacked bundle.
func printBundle(w io.Writer) error {
	variables := offline.Environment()
	if len(variables) == 0 {
		return nil
	}
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		if _, err := fmt.Fprintf(w, "export %s=%s\n", name, quote(value)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "unset GOROOT\nexport PATH=%s:\"$PATH\"\n", quote(offline.GoDir()))
	return err
}

// quote quotes text for a shell, as one word.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// findUp returns the running cluster with its state in dir.
func findUp(ctx context.Context, dir string) (*cluster.Cluster, error) {
	c, err := cluster.Find(ctx, dir, os.Stderr)
	if !errors.Is(err, cluster.ErrNotUp) {
		return c, err
	}
	if _, statErr := os.Stat(dir); statErr == nil {
		return nil, fmt.Errorf("%w; its state has been kept, and make up starts it again", err)
	}
	return nil, fmt.Errorf("%w; make up starts one", err)
}

// withUpDir calls run with the directory of the cluster of "workshop up".
func withUpDir(ctx context.Context, run func(ctx context.Context, dir string) error) error {
	root, err := cluster.Root(ctx)
	if err != nil {
		return err
	}
	return run(ctx, upDir(root))
}

// count is a number of nodes with its noun.
func count(nodes int) string {
	if nodes == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", nodes)
}

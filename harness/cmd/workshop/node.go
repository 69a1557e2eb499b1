package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/machine"
)

func nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Add, remove and break the simulated nodes of the cluster of \"workshop up\"",
	}
	sub := func(use, short string, do func(context.Context, kubernetes.Interface, string) error) {
		cmd.AddCommand(&cobra.Command{
			Use:   use + " NAME...",
			Short: short,
			Args:  cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, names []string) error {
				return inUpDir(cmd.Context(), func(ctx context.Context, dir string) error {
					c, err := findUp(ctx, dir)
					if err != nil {
						return err
					}
					client, err := c.Client()
					if err != nil {
						return err
					}
					for _, name := range names {
						if err := do(ctx, client, name); err != nil {
							return err
						}
						fmt.Printf("node %s: %s\n", name, use)
					}
					return nil
				})
			},
		})
	}
	sub("add", "Add a node", machine.Add)
	sub("remove", "Remove a node", machine.Remove)
	sub("ready", "Let a node's kubelet report that it is ready", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetReady(ctx, client, name, true)
	})
	sub("not-ready", "Let a node's kubelet report that it is not ready", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetReady(ctx, client, name, false)
	})
	sub("on", "Switch a node on", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetPower(ctx, client, name, true)
	})
	sub("off", "Switch a node off: it falls silent, and turns Unknown after about 50 s", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetPower(ctx, client, name, false)
	})
	return cmd
}

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
		Short: "Add, remove and break simulated nodes of the cluster of \"workshop up\"",
	}
	sub := func(use, short string, change func(context.Context, kubernetes.Interface, string) error) {
		cmd.AddCommand(&cobra.Command{
			Use:   use + " NAME...",
			Short: short,
			Args:  cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, names []string) error {
				return withUpDir(cmd.Context(), func(ctx context.Context, dir string) error {
					c, err := findUp(ctx, dir)
					if err != nil {
						return err
					}
					client, err := c.Client()
					if err != nil {
						return err
					}
					for _, name := range names {
						if err := change(ctx, client, name); err != nil {
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
	sub("ready", "Make a node's kubelet report Ready", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetReady(ctx, client, name, true)
	})
	sub("not-ready", "Make a node's kubelet report NotReady", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetReady(ctx, client, name, false)
	})
	sub("on", "Switch a node on", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetPower(ctx, client, name, true)
	})
	sub("off", "Switch a node off: its kubelet stops reporting, and its Ready condition becomes Unknown after about 50 s", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetPower(ctx, client, name, false)
	})
	return cmd
}

package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/controlplane/nodes"
)

func kubeletsCommand() *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "kubelets --kubeconfig FILE",
		Short: "Simulate the kubelets of the simulated machines of another cluster, until standard input is closed",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin)
				stop()
			}()
			if err := nodes.Run(ctx, kubeconfig); ctx.Err() == nil {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "`path` of a kubeconfig of an administrator (required)")
	if err := cmd.MarkFlagRequired("kubeconfig"); err != nil {
		panic(err)
	}
	return cmd
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/reboot/protocol"
)

func requestCommand(p *plugin) *cobra.Command {
	var why string
	cmd := editCommand(p, func(ctx context.Context, client kubernetes.Interface, node string) (string, error) {
		return protocol.Request(ctx, client, node, why)
	})
	cmd.Use = "request (NODE... | --selector SELECTOR | --all)"
	cmd.Short = "Ask for a reboot of Nodes"
	cmd.Long = "Ask for a reboot of Nodes. The controller drains and reboots them one after another, within its limits."
	cmd.Example = "  kubectl reboot request n1 n2 --reason \"new kernel\"\n  kubectl reboot request --selector pool=web"
	cmd.Flags().StringVar(&why, "reason", "", "`text` that says why; it is kept in the annotation "+protocol.NeededAnnotation)
	return cmd
}

func cancelCommand(p *plugin) *cobra.Command {
	cmd := editCommand(p, protocol.Cancel)
	cmd.Use = "cancel (NODE... | --selector SELECTOR | --all)"
	cmd.Short = "Cancel reboots that have not begun"
	cmd.Long = "Cancel reboots that have not begun. The controller uncordons Nodes that it has cordoned. A sentinel file or command that still asks for a reboot is ignored until it has stopped asking."
	return cmd
}

// editCommand returns a command that does something to each selected Node. It goes on to the next Node after a failure.
func editCommand(p *plugin, edit func(ctx context.Context, client kubernetes.Interface, node string) (string, error)) *cobra.Command {
	nodes := &selection{}
	cmd := &cobra.Command{RunE: func(cmd *cobra.Command, args []string) error {
		if err := nodes.parse(cmd, args); err != nil {
			return err
		}
		client, err := p.connect(p.config)
		if err != nil {
			return err
		}
		names, err := nodes.resolve(cmd.Context(), client)
		if err != nil {
			return err
		}
		var errs []error
		for _, name := range names {
			done, err := edit(cmd.Context(), client, name)
			if err != nil {
				errs = append(errs, notFound(err, name))
				continue
			}
			fmt.Fprintf(cmd.OutOrStdout(), "node/%s %s\n", name, done)
		}
		return errors.Join(errs...)
	}}
	nodes.addFlags(cmd.Flags(), true)
	return cmd
}

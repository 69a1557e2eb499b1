package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"example.com/controllers/reboot/protocol"
)

func pauseCommand(p *plugin) *cobra.Command {
	return p.setPausedCommand("pause", "Let no more Nodes begin a reboot", "cancel", true)
}

func resumeCommand(p *plugin) *cobra.Command {
	return p.setPausedCommand("resume", "Let Nodes reboot again", "request", false)
}

// setPausedCommand returns one of the two commands. Its counterpart is the command for a single Node.
func (p *plugin) setPausedCommand(use, short, counterpart string, paused bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  short + ". Nodes that have been admitted go on. The controller reads the switch from its ledger, and needs no restart.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("\"%s\" takes no arguments, and is about all Nodes; \"kubectl reboot %s %s\" is about one", cmd.CommandPath(), counterpart, args[0])
			}
			return p.setPaused(cmd, paused)
		},
	}
	p.addLedgerFlag(cmd.Flags())
	return cmd
}

func (p *plugin) setPaused(cmd *cobra.Command, paused bool) error {
	client, err := p.connect(p.config)
	if err != nil {
		return err
	}
	settings, err := p.findLedger(cmd.Context(), client)
	if err != nil {
		return err
	}
	namespace, name := "", p.ledger
	if settings != nil {
		namespace = settings.Namespace
	} else if namespace, _, err = p.namespace(); err != nil {
		return err
	}
	changed, created, err := protocol.SetPaused(cmd.Context(), client, namespace, name, paused)
	if err != nil {
		return err
	}
	did := "reboots resumed"
	if paused {
		did = "reboots paused"
	}
	switch {
	case settings == nil && !paused && !changed:
		did = "does not exist, so reboots are not paused"
	case !changed && paused:
		did = "reboots already paused"
	case !changed:
		did = "reboots are not paused"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "configmap/%s in namespace %s: %s\n", name, namespace, did)
	if created || paused && settings != nil && !settings.Used() {
		fmt.Fprintf(cmd.ErrOrStderr(), "Warning: no controller has used this ledger so far. It pauses only a controller with --namespace %s and --ledger %s.\n", namespace, name)
	}
	return nil
}

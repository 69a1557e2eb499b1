package main

import (
	"errors"
	"fmt"
	"slices"

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
	var pause protocol.Pause
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  short + ". Nodes that have been admitted go on. The controller reads the switch from its ledger, and needs no restart.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("\"%s\" takes no arguments, and is about all Nodes; \"kubectl reboot %s %s\" is about one", cmd.CommandPath(), counterpart, args[0])
			}
			if cmd.Flags().Changed("by") && pause.Name == "" {
				return errors.New("--by is empty; without it, this is about the administrator's own pause")
			}
			return p.setPaused(cmd, pause, paused)
		},
	}
	p.addLedgerFlag(cmd.Flags())
	if paused {
		cmd.Flags().StringVar(&pause.Name, "by", "", "`name` of who pauses, such as a monitoring system; reboots stay paused while anybody pauses them")
		cmd.Flags().StringVar(&pause.Why, "reason", "", "`text` that says why; needs --by")
	} else {
		cmd.Flags().StringVar(&pause.Name, "by", "", "`name` of whose pause ends; the others' stay")
	}
	return cmd
}

func (p *plugin) setPaused(cmd *cobra.Command, pause protocol.Pause, paused bool) error {
	if err := pause.Validate(); err != nil {
		return err
	}
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
	changed, created, err := protocol.SetPaused(cmd.Context(), client, namespace, name, pause, paused)
	if err != nil {
		return err
	}
	by := ""
	if pause.Name != "" {
		by = " by " + pause.Name
	}
	did := "reboots resumed"
	switch {
	case settings == nil && !paused && !changed:
		did = "does not exist, so reboots are not paused"
	case !changed && paused:
		did = "reboots already paused" + by
	case !changed:
		did = "reboots are not paused" + by
	case paused:
		did = "reboots paused" + by
	}
	if settings != nil && !paused {
		if others := slices.DeleteFunc(settings.Pauses, func(other protocol.Pause) bool { return other.Name == pause.Name }); len(others) > 0 {
			ended := "that pause has ended"
			if !changed {
				ended = "there is no such pause"
			}
			did = fmt.Sprintf("%s, but %s", ended, protocol.Describe(others))
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "configmap/%s in namespace %s: %s\n", name, namespace, did)
	if created || paused && settings != nil && !settings.Used() {
		fmt.Fprintf(cmd.ErrOrStderr(), "Warning: no controller has used this ledger so far. It pauses only a controller with --namespace %s and --ledger %s.\n", namespace, name)
	}
	return nil
}

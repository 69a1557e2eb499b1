package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"example.com/controllers/reboot/agent"
)

// agentFlags are the flags of the agent.
type agentFlags struct {
	server
	options         agent.Options
	bootID          string
	rebootMethod    string
	rebootCommand   string
	sentinelFile    string
	sentinelCommand string
	sentinelEvery   time.Duration
}

func agentCommand(f *agentFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent, which reboots the machine it is on",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	f.addFlags(cmd)
	o, flags := &f.options, cmd.Flags()
	flags.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"), "`name` of the Node that this machine is; default: NODE_NAME")
	flags.StringVar(&f.bootID, "boot-id", "file:/proc/sys/kernel/random/boot_id", "where the boot ID comes from: file:`PATH`; init:DIRECTORY, for the start time of the machine's first process, such as init:/proc/1; or node, for what the kubelet reports")
	flags.StringVar(&f.rebootMethod, "reboot-method", "logind", "how to reboot the machine: `logind`, command, or none for a dry run")
	flags.StringVar(&f.rebootCommand, "reboot-command", "", "the `command` of --reboot-method command; its words are separated by spaces, and no shell runs it")
	flags.StringVar(&f.sentinelFile, "sentinel-file", "", "`path` of a file that asks for a reboot while it exists, such as /var/run/reboot-required")
	flags.StringVar(&f.sentinelCommand, "sentinel-command", "", "`command` that asks for a reboot when it exits with status 0, and does not with 1")
	flags.DurationVar(&f.sentinelEvery, "sentinel-interval", time.Minute, "how often the sentinel is checked")
	flags.DurationVar(&o.RebootRetry, "reboot-retry", 2*time.Minute, "how long the machine may take to go down before it is asked to reboot again")
	flags.DurationVar(&o.Backoff, "backoff", time.Second, "wait before the first retry of a failed request; doubles with each further failure")
	flags.DurationVar(&o.MaxBackoff, "max-backoff", time.Minute, "upper limit of that wait")
	return cmd
}

// parse completes the options, except for what needs a client.
func (f *agentFlags) parse() error {
	source, argument, _ := strings.Cut(f.bootID, ":")
	switch {
	case source == "file" && filepath.IsAbs(argument):
		f.options.BootID = agent.KernelBootID(argument)
	case source == "init" && filepath.IsAbs(argument):
		f.options.BootID = agent.InitBootID(argument)
	case f.bootID == "node": // see complete
	default:
		return fmt.Errorf("--boot-id is %q; it must be file:PATH, init:DIRECTORY or node", f.bootID)
	}
	command := strings.Fields(f.rebootCommand)
	switch {
	case f.rebootMethod == "command" && len(command) > 0:
		f.options.Rebooter = agent.Command(command)
	case f.rebootMethod == "command":
		return errors.New("--reboot-method is command, and --reboot-command is missing")
	case len(command) > 0:
		return fmt.Errorf("--reboot-command has no effect, because --reboot-method is %q; set it to command", f.rebootMethod)
	case f.rebootMethod == "logind":
		f.options.Rebooter = agent.Logind{}
	case f.rebootMethod == "none":
		f.options.Rebooter = agent.DryRun{}
	default:
		return fmt.Errorf("--reboot-method is %q; it must be logind, command or none", f.rebootMethod)
	}
	sentinelCommand := strings.Fields(f.sentinelCommand)
	switch {
	case f.sentinelFile != "" && f.sentinelCommand != "":
		return errors.New("--sentinel-file and --sentinel-command exclude each other")
	case f.sentinelCommand != "" && len(sentinelCommand) == 0:
		return errors.New("--sentinel-command has no words")
	case f.sentinelFile != "" && !filepath.IsAbs(f.sentinelFile):
		return fmt.Errorf("--sentinel-file is %q; it must be an absolute path", f.sentinelFile)
	case f.sentinelEvery <= 0:
		return fmt.Errorf("--sentinel-interval is %s; it must be greater than 0", f.sentinelEvery)
	case f.sentinelFile != "" || f.sentinelCommand != "":
		f.options.Sentinel = &agent.Sentinel{File: f.sentinelFile, Command: sentinelCommand, Interval: f.sentinelEvery}
	}
	return f.options.Validate()
}

// complete sets the option that needs a client: the boot ID that the kubelet reports.
func (f *agentFlags) complete(client kubernetes.Interface) {
	if f.bootID == "node" {
		f.options.BootID = agent.NodeBootID{Client: client, Node: f.options.NodeName}
	}
}

func (f *agentFlags) run(ctx context.Context) error {
	if err := f.parse(); err != nil {
		return err
	}
	config, err := f.clientConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	f.complete(client)
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "node", f.options.NodeName))
	agent, err := agent.New(ctx, client, f.options)
	if err != nil {
		return err
	}
	return f.serve(ctx, agent.Ready, nil, agent.Run)
}

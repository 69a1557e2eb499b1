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
	sentinelStatus  int
	hostRoot        string
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
	flags.StringVar(&f.rebootCommand, "reboot-command", "", "the `command` of --reboot-method command; a shell runs it if it has quotes or other characters that mean something to one, and otherwise its words are separated by spaces")
	flags.StringVar(&f.sentinelFile, "sentinel-file", "", "`path` of a file that asks for a reboot while it exists, such as /var/run/reboot-required")
	flags.StringVar(&f.sentinelCommand, "sentinel-command", "", "`command` that asks for a reboot by its exit status; run like --reboot-command")
	flags.IntVar(&f.sentinelStatus, "sentinel-status", 0, "exit `status` with which --sentinel-command asks for a reboot, such as 1 for needs-restarting -r; it does not with 0, or with 1 if this is 0")
	flags.StringVar(&f.hostRoot, "host-root", "", "`directory` at which the host's root directory is mounted, in which both commands are run, by the host's shell; default: they are run in the container")
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
	if f.hostRoot != "" && !filepath.IsAbs(f.hostRoot) {
		return fmt.Errorf("--host-root is %q; it must be an absolute path", f.hostRoot)
	}
	hasCommand := strings.TrimSpace(f.rebootCommand) != ""
	switch {
	case f.rebootMethod == "command" && hasCommand:
		f.options.Rebooter = agent.Command{Line: f.rebootCommand, Root: f.hostRoot}
	case f.rebootMethod == "command":
		return errors.New("--reboot-method is command, and --reboot-command is missing")
	case hasCommand:
		return fmt.Errorf("--reboot-command has no effect, because --reboot-method is %q; set it to command", f.rebootMethod)
	case f.rebootMethod == "logind":
		f.options.Rebooter = agent.Logind{}
	case f.rebootMethod == "none":
		f.options.Rebooter = agent.DryRun{}
	default:
		return fmt.Errorf("--reboot-method is %q; it must be logind, command or none", f.rebootMethod)
	}
	switch {
	case f.sentinelFile != "" && f.sentinelCommand != "":
		return errors.New("--sentinel-file and --sentinel-command exclude each other")
	case f.sentinelCommand != "" && strings.TrimSpace(f.sentinelCommand) == "":
		return errors.New("--sentinel-command has no words")
	case f.sentinelFile != "" && !filepath.IsAbs(f.sentinelFile):
		return fmt.Errorf("--sentinel-file is %q; it must be an absolute path", f.sentinelFile)
	case f.hostRoot != "" && !hasCommand && f.sentinelCommand == "":
		return errors.New("--host-root has no effect without --sentinel-command or --reboot-command; name the sentinel file as the agent sees it")
	case f.sentinelStatus < 0 || f.sentinelStatus > 255:
		return fmt.Errorf("--sentinel-status is %d; an exit status is from 0 to 255", f.sentinelStatus)
	case f.sentinelStatus != 0 && f.sentinelCommand == "":
		return errors.New("--sentinel-status has no effect without --sentinel-command")
	case f.sentinelEvery <= 0:
		return fmt.Errorf("--sentinel-interval is %s; it must be greater than 0", f.sentinelEvery)
	case f.sentinelFile != "" || f.sentinelCommand != "":
		f.options.Sentinel = &agent.Sentinel{File: f.sentinelFile, Command: agent.Command{Line: f.sentinelCommand, Root: f.hostRoot}, AsksWith: f.sentinelStatus, Interval: f.sentinelEvery}
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

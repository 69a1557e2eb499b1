package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/machine/host"
)

// nodeFlags are the flags that all subcommands of "workshop node" have.
type nodeFlags struct {
	kubeconfig string
	guarded    bool
}

func nodeCommand() *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Add, remove, break and reboot simulated nodes, and run processes on them",
		Long: `Add, remove, break and reboot simulated nodes, and run processes on them.

The cluster is that of --kubeconfig, or else of the environment variable ` + cluster.KubeconfigVariable + `,
or else of "workshop up". Nodes that are not simulated are never changed.`,
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster's administrator; default: that of \"workshop up\"")
	flags.BoolVar(&f.guarded, "guarded", false, "")
	_ = flags.MarkHidden("guarded")

	sub := func(use, short string, change func(context.Context, kubernetes.Interface, string) error) *cobra.Command {
		verb, _, _ := strings.Cut(use, " ")
		sub := &cobra.Command{
			Use:   use + " NAME...",
			Short: short,
			Args:  cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, names []string) error {
				c, err := f.cluster(cmd.Context())
				if err != nil {
					return err
				}
				client, err := c.Client()
				if err != nil {
					return err
				}
				for _, name := range names {
					if err := change(cmd.Context(), client, name); err != nil {
						return err
					}
					fmt.Printf("node %s: %s\n", name, verb)
				}
				return nil
			},
		}
		cmd.AddCommand(sub)
		return sub
	}
	sub("add", "Add a node", machine.Add)
	sub("remove", "Remove a node", machine.Remove)
	sub("ready", "Make a node's kubelet report Ready", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetReady(ctx, client, name, true)
	})
	sub("not-ready", "Make a node's kubelet report NotReady", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetReady(ctx, client, name, false)
	})
	sub("on", "Switch a node on: it boots, and has a new boot ID", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetPower(ctx, client, name, true)
	})
	sub("off", "Switch a node off: its kubelet stops reporting, and its Ready condition becomes Unknown after about 50 s", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetPower(ctx, client, name, false)
	})

	var once machine.RebootOptions
	reboot := sub("reboot", "Tell a node to reboot", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.Reboot(ctx, client, name, once)
	})
	reboot.Long = `Tell a node to reboot, without waiting for it: the control plane carries out the reboot. A
node that is rebooting already does not reboot again. ` + rebootUsage
	rebootFlags(reboot, &once, "normal, or what \"workshop node set-reboot\" has set")

	var later machine.RebootOptions
	setReboot := sub("set-reboot", "Set what happens when a node is told to reboot", func(ctx context.Context, client kubernetes.Interface, name string) error {
		return machine.SetReboots(ctx, client, name, later)
	})
	setReboot.Long = `Set what happens from now on when a node is told to reboot, unless the flags of "workshop
node reboot" say otherwise. Without flags, reboots are normal again. ` + rebootUsage
	rebootFlags(setReboot, &later, "normal")
	cmd.AddCommand(nodeRunCommand(&f))
	return cmd
}

const rebootUsage = `The behaviors are:

  normal        the kubelet reports Ready=False, the power goes off, and after the boot time the
                node is on again, with a new boot ID
  hang          the node stays off until it is switched on
  same-boot-id  as normal, but the boot ID stays the same
  fast          the node boots at once, and its Ready condition stays True
  power-cut     the power goes off without notice for the boot time, and the Ready condition
                stays True unless the node's Lease expires in that time
  ignore        nothing happens`

// rebootFlags defines the flags that say how a node reboots.
func rebootFlags(cmd *cobra.Command, o *machine.RebootOptions, usual string) {
	cmd.Flags().StringVar((*string)(&o.Behavior), "behavior", "", "normal, hang, same-boot-id, fast, power-cut or ignore; default: "+usual)
	cmd.Flags().DurationVar(&o.BootTime, "boot-time", 0, fmt.Sprintf("`time` between power off and power on; 0 for the default (%s, or what \"workshop node set-reboot\" has set)", machine.DefaultBootTime))
}

// cluster returns the cluster that the flags and the environment select.
func (f *nodeFlags) cluster(ctx context.Context) (*cluster.Cluster, error) {
	if kubeconfig := cmp.Or(f.kubeconfig, os.Getenv(cluster.KubeconfigVariable)); kubeconfig != "" {
		path, err := filepath.Abs(kubeconfig) // processes on machines may have another working directory
		return &cluster.Cluster{Kubeconfig: path}, err
	}
	var c *cluster.Cluster
	err := withUpDir(ctx, func(ctx context.Context, dir string) (err error) {
		c, err = findUp(ctx, dir)
		return err
	})
	return c, err
}

func nodeRunCommand(f *nodeFlags) *cobra.Command {
	var o host.Options
	cmd := &cobra.Command{
		Use:   "run -- COMMAND [ARGUMENT]...",
		Short: "Run a process of a command on each node",
		Long: `Run a process of a command on each node, as a DaemonSet runs a Pod on each. A process is killed
with SIGKILL as soon as its node's power goes off or the node is removed, and is started again
when the node has booted. A process that exits by itself is restarted after a delay, which
doubles each time.

In the arguments, {node} is replaced by the node's name, and {kubeconfig} by the path of a
kubeconfig. The environment has NODE_NAME and KUBECONFIG, and ` + cluster.KubeconfigVariable + `, so that
"workshop node reboot {node}" works as the command with which a process reboots its node.
Lines that a process prints are prefixed with its node's name.

SIGTERM or Ctrl-C stops the processes and this command.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, command []string) error {
			if !f.guarded {
				return rerunUnderGuard(cmd.Context())
			}
			guard.AwaitInterrupt()
			var err error
			if o.Cluster, err = f.cluster(cmd.Context()); err != nil {
				return err
			}
			o.Command, o.Scratch, o.Output, o.Log = command, guard.Scratch(), os.Stdout, os.Stderr
			return host.Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Selector, "selector", "", "run on the nodes with these labels only, such as zone=a; default: all simulated nodes")
	flags.StringVar(&o.Account, "account", "", "`NAMESPACE/SERVICEACCOUNT` that each process authenticates as, with a token that is bound to its node; default: the administrator")
	flags.DurationVar(&o.Delay, "delay", time.Second, "time before a process that has exited by itself is restarted, the first time")
	return cmd
}

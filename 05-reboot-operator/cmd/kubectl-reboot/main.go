// Program kubectl-reboot is all of lesson 5: the controller, the agent, and the plugin with which an administrator asks for
// reboots and follows them. kubectl finds it under this name when it is in a directory of PATH, as "kubectl reboot".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // an image without a system has no time zones

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"example.com/controllers/reboot/internal/clusterconfig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl-reboot:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-reboot",
		Short: "Reboot the Nodes of a cluster one after another",
		// kubectl shows it like this.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl reboot"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	cmd.PersistentFlags().AddGoFlag(klogFlags.Lookup("v"))
	for _, command := range []*cobra.Command{controllerCommand(&controllerFlags{}), agentCommand(&agentFlags{})} {
		once(command.Flags())
		cmd.AddCommand(command)
	}
	cmd.AddCommand(pluginCommands(connect, time.Now)...)
	return cmd
}

// server are the flags that the controller and the agent share.
type server struct {
	kubeconfig, address string
}

func (s *server) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "`path` of a kubeconfig; default: KUBECONFIG, or in a Pod its ServiceAccount")
	cmd.Flags().StringVar(&s.address, "address", "127.0.0.1:8080", "`host:port` to serve /metrics, /healthz and /readyz on; port 0 picks a free one")
}

// clientConfig loads the kubeconfig or, if its path is empty, uses the ServiceAccount of the Pod that we run in.
func (s *server) clientConfig() (*rest.Config, error) {
	if s.kubeconfig != "" {
		config, err := clusterconfig.Load(s.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", s.kubeconfig, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("not in a Pod, and no --kubeconfig or KUBECONFIG: %w", err)
	}
	return config, nil
}

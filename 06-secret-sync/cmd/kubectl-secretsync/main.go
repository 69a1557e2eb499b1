// Program kubectl-secretsync is all of lesson 6: the controller, and the plugin that shows what it has done and what it would
// do. kubectl finds it under this name when it is in a directory of PATH, as "kubectl secretsync".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"example.com/controllers/secretsync"
	"example.com/controllers/secretsync/internal/clusterconfig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl-secretsync:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	cmd := &cobra.Command{
		Use:   "kubectl-secretsync",
		Short: "Keep copies of Secrets in many namespaces",
		// kubectl shows it like this.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl secretsync"},
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if level, err := strconv.Atoi(klogFlags.Lookup("v").Value.String()); err == nil && level > secretsync.MaxVerbosity {
				return fmt.Errorf("--v is %d; it must be at most %d: from %d on, client-go logs the bodies of requests, and with them the data of Secrets", level, secretsync.MaxVerbosity, secretsync.MaxVerbosity+1)
			}
			return nil
		},
	}
	cmd.PersistentFlags().AddGoFlag(klogFlags.Lookup("v"))
	cmd.AddCommand(controllerCommand(&controllerFlags{}))
	cmd.AddCommand(pluginCommands(connect)...)
	return cmd
}

// server are the flags that every server has.
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

// Program controlplane is a whole Kubernetes control plane in one process: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, and simulated nodes.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use:           "controlplane",
		Short:         "A Kubernetes control plane with simulated nodes, in one process",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

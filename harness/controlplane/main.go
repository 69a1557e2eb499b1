// Command controlplane runs a whole Kubernetes control plane in one process: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, and the kubelets of simulated machines (package machine).
//
//   - It listens on one port of 127.0.0.1 only; etcd listens on a Unix socket.
//   - It writes to its data directory only, and can be started on it again with the cluster as it was.
//   - It may be killed at any moment: the cluster loses nothing that the API server has acknowledged.
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
	root.AddCommand(serveCommand(), kubeletsCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// Program controlplane is a whole Kubernetes control plane in one process: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, and simulated nodes. Under the name kubectl, or with that
// word as its first argument, it is kubectl of the same version.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways to log in that a person's kubeconfig may name
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	switch {
	case filepath.Base(os.Args[0]) == "kubectl":
		runKubectl()
		return
	case len(os.Args) > 1 && os.Args[1] == "kubectl":
		os.Args = os.Args[1:]
		runKubectl()
		return
	}
	root := &cobra.Command{
		Use:           "controlplane",
		Short:         "A Kubernetes control plane with simulated nodes, in one process",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), &cobra.Command{
		Use:                "kubectl",
		Short:              "kubectl of the same version",
		DisableFlagParsing: true,
	})
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// runKubectl does what k8s.io/kubernetes/cmd/kubectl does.
func runKubectl() {
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl:", err)
		os.Exit(1)
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

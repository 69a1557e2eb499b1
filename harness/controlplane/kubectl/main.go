// Command kubectl is k8s.io/kubernetes/cmd/kubectl, in the control plane's version.
package main

import (
	"fmt"
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // the authentication plugins that a user's kubeconfig may name
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	_ "example.com/controllers/harness/controlplane/kubectl/english"
)

func main() {
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl:", err)
		os.Exit(1)
	}
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

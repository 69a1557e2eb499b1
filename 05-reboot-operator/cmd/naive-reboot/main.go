// Program naive-reboot runs the controller or the agent of package naive:
//
//	naive-reboot controller
//	naive-reboot agent COMMAND [ARGUMENT]...
package main

import (
	"context"
	"flag"
	"log"
	"os"

	"k8s.io/client-go/kubernetes"

	"example.com/controllers/reboot/internal/clusterconfig"
	"example.com/controllers/reboot/naive"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`path` of a kubeconfig; default: KUBECONFIG")
	flag.Parse()
	config, err := clusterconfig.Load(*kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	switch {
	case flag.Arg(0) == "controller" && flag.NArg() == 1:
		err = naive.RunController(context.Background(), client)
	case flag.Arg(0) == "agent" && flag.NArg() > 1:
		err = naive.RunAgent(context.Background(), client, os.Getenv("NODE_NAME"), flag.Args()[1:])
	default:
		log.Fatal("usage: naive-reboot controller, or naive-reboot agent COMMAND [ARGUMENT]...")
	}
	log.Fatal(err)
}

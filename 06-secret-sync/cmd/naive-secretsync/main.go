// Program naive-secretsync runs one of the two stages of package naive:
//
//	naive-secretsync on-events NAMESPACE
//	naive-secretsync sync-all NAMESPACE
package main

import (
	"context"
	"flag"
	"log"
	"os"

	"k8s.io/client-go/kubernetes"

	"example.com/controllers/secretsync/internal/clusterconfig"
	"example.com/controllers/secretsync/naive"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`path` of a kubeconfig; default: KUBECONFIG")
	flag.Parse()
	config, err := clusterconfig.Load(*kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	run := map[string]func(*naive.Syncer, context.Context) error{
		"on-events": (*naive.Syncer).RunOnEvents, "sync-all": (*naive.Syncer).RunSyncAll,
	}[flag.Arg(0)]
	if run == nil || flag.NArg() != 2 {
		log.Fatal("usage: naive-secretsync on-events NAMESPACE, or naive-secretsync sync-all NAMESPACE")
	}
	config.QPS = -1
	ctx := context.Background()
	log.Fatal(run(naive.New(ctx, kubernetes.NewForConfigOrDie(config), flag.Arg(1)), ctx))
}

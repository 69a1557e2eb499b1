// Program bugs demonstrates three common bugs of controllers. Like kubectl, it works in the namespace of the
// kubeconfig's current context. It changes nothing there.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// bugs maps the argument to the bug. Each bug has a file of its own.
var bugs = map[string]func(ctx context.Context, client kubernetes.Interface, namespace string) error{
	"mutation":  mutation,
	"unsynced":  unsynced,
	"tombstone": tombstone,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bugs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	bug, ok := bugs[strings.Join(os.Args[1:], " ")]
	if !ok {
		return errors.New("name one bug: mutation, unsynced or tombstone")
	}
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := kubeconfig.ClientConfig()
	if err != nil {
		return err
	}
	namespace, _, err := kubeconfig.Namespace()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return bug(ctx, client, namespace)
}

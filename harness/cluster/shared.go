package cluster

import (
	"context"
	"os"
	"sync"
)

// SharedVariable is the name of an environment variable with the kubeconfig of a running cluster that [Shared]
// uses, so that all test processes share it.
const SharedVariable = "WORKSHOP_KUBECONFIG"

// Shared returns the cluster that the tests of this process share: the one of [SharedVariable], or else one with
// three Nodes that it starts on the first call and that ends with the process. Each test uses a namespace of its
// own and does not change the Nodes.
var Shared = sync.OnceValues(func() (*Cluster, error) {
	ctx := context.Background()
	path := os.Getenv(SharedVariable)
	if path == "" {
		return Start(ctx, Options{Nodes: 3, Progress: os.Stderr})
	}
	return OpenFile(ctx, path, "the cluster of "+path, os.Stderr)
})

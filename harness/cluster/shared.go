package cluster

import (
	"context"
	"os"
	"sync"
)

// SharedVariable names the environment variable with the kubeconfig of a cluster that all tests of a
// run share. Where it is not set, each test process starts one of its own.
const SharedVariable = "WORKSHOP_KUBECONFIG"

// Shared returns the cluster that the tests of this process share, with at least three Nodes. It ends
// with the process. Tests keep out of each other's way with a namespace each, and leave the Nodes alone.
var Shared = sync.OnceValues(func() (*Cluster, error) {
	ctx := context.Background()
	path := os.Getenv(SharedVariable)
	if path == "" {
		return Start(ctx, Options{Nodes: 3, Progress: os.Stderr})
	}
	return openFile(ctx, path)
})

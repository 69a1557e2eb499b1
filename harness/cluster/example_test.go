package cluster_test

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/machine"
)

// The cluster lives until Stop, and no longer than this process.
func ExampleStart() {
	ctx := context.Background()
	c, err := cluster.Start(ctx, cluster.Options{Nodes: 2, Progress: os.Stderr})
	if err != nil {
		panic(err)
	}
	defer c.Stop()
	client, err := c.Client()
	if err != nil {
		panic(err)
	}
	if err := machine.Add(ctx, client, "one-more"); err != nil {
		panic(err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println("Kubernetes", c.Version)
	for _, node := range nodes.Items {
		fmt.Println(node.Name)
	}
	// Output:
	// Kubernetes v1.37.1
	// node-0
	// node-1
	// one-more
}

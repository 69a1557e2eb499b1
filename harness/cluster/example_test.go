package cluster_test

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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

// A controller that runs outside of the cluster has the rights of its ServiceAccount: here, one without any role.
func ExampleCluster_ServiceAccountConfig() {
	ctx := context.Background()
	c, err := cluster.Shared()
	if err != nil {
		panic(err)
	}
	admin, err := c.Client()
	if err != nil {
		panic(err)
	}
	accounts := admin.CoreV1().ServiceAccounts("default")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "frontend-controller"}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil {
		panic(err)
	}
	defer accounts.Delete(ctx, account.Name, metav1.DeleteOptions{})

	config, err := c.ServiceAccountConfig(ctx, "default", account.Name)
	if err != nil {
		panic(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		panic(err)
	}
	_, err = client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	fmt.Println(err)
	// Output:
	// pods is forbidden: User "system:serviceaccount:default:frontend-controller" cannot list resource "pods" in API group "" in the namespace "default"
}

package machine_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/machine"
)

// TestMain leaves out the slow example in short mode: examples cannot skip themselves.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		if err := flag.Set("test.skip", "^ExampleSetPower$"); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(m.Run())
}

// The machine's kubelet reports that it is Ready, or not, as SetReady says.
func Example() {
	ctx := context.Background()
	client, stop := startCluster(ctx)
	defer stop()

	if err := machine.Add(ctx, client, "node-a"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("added:", awaitReady(ctx, client, "node-a", corev1.ConditionTrue))

	if err := machine.SetReady(ctx, client, "node-a", false); err != nil {
		log.Fatal(err)
	}
	fmt.Println("not ready:", awaitReady(ctx, client, "node-a", corev1.ConditionFalse))

	if err := machine.SetReady(ctx, client, "node-a", true); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready again:", awaitReady(ctx, client, "node-a", corev1.ConditionTrue))

	if err := machine.Remove(ctx, client, "node-a"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// added: True KubeletReady
	// not ready: False KubeletNotReady
	// ready again: True KubeletReady
}

// A machine that is powered off cannot report anything. The node lifecycle controller notices after about 50 s
// that its Lease is no longer renewed.
func ExampleSetPower() {
	ctx := context.Background()
	client, stop := startCluster(ctx)
	defer stop()

	if err := machine.Add(ctx, client, "node-a"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("added:", awaitReady(ctx, client, "node-a", corev1.ConditionTrue))

	if err := machine.SetPower(ctx, client, "node-a", false); err != nil {
		log.Fatal(err)
	}
	fmt.Println("off:", awaitReady(ctx, client, "node-a", corev1.ConditionUnknown))

	if err := machine.SetPower(ctx, client, "node-a", true); err != nil {
		log.Fatal(err)
	}
	fmt.Println("on again:", awaitReady(ctx, client, "node-a", corev1.ConditionTrue))
	// Output:
	// added: True KubeletReady
	// off: Unknown NodeStatusUnknown
	// on again: True KubeletReady
}

// startCluster starts a control plane without Nodes.
func startCluster(ctx context.Context) (client kubernetes.Interface, stop func() error) {
	c, err := cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
	if err != nil {
		log.Fatal(err)
	}
	if client, err = c.Client(); err != nil {
		log.Fatal(err)
	}
	return client, c.Stop
}

// awaitReady watches a Node until its Ready condition has the status, and returns the status and its reason.
func awaitReady(ctx context.Context, client kubernetes.Interface, name string, status corev1.ConditionStatus) string {
	nodes := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll,
		fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	var result string
	_, err := watchtools.UntilWithSync(ctx, nodes, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		for _, condition := range event.Object.(*corev1.Node).Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == status {
				result = fmt.Sprintf("%s %s", condition.Status, condition.Reason)
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		log.Fatalf("wait for the Ready condition of Node %s to be %s: %v", name, status, err)
	}
	return result
}

package apiproxy_test

import (
	"context"
	"fmt"
	"log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/history"
)

// A client goes through the proxy, meets a fault, and is recorded.
func Example() {
	ctx := context.Background()
	c, err := cluster.Shared()
	if err != nil {
		log.Fatal(err)
	}
	upstream, err := c.Config()
	if err != nil {
		log.Fatal(err)
	}
	fault, err := apiproxy.ParseFault("verb=get,resource=nodes,nth=1,refuse=500")
	if err != nil {
		log.Fatal(err)
	}
	var memory history.Memory
	proxy, err := apiproxy.Start(ctx, apiproxy.Options{
		Upstream: upstream,
		Record:   memory.Record,
		Faults:   []apiproxy.Fault{fault},
	})
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(proxy.Config())
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		_, err := client.CoreV1().Nodes().Get(ctx, "node-0", metav1.GetOptions{})
		fmt.Println("error:", err != nil)
	}
	// The label is there already, and the API server says at which resourceVersion.
	if _, err := client.CoreV1().Namespaces().Get(ctx, "kube-public", metav1.GetOptions{}); err != nil {
		log.Fatal(err)
	}
	label := []byte(`{"metadata":{"labels":{"kubernetes.io/metadata.name":"kube-public"}}}`)
	if _, err := client.CoreV1().Namespaces().Patch(ctx, "kube-public", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := proxy.Stop(); err != nil {
		log.Fatal(err)
	}
	for _, r := range memory.History().Requests {
		fmt.Printf("%s %s %s: %d %q no-op: %t\n", r.Verb, r.What(), r.Object(), r.Status, r.Injections(), r.NoOp)
	}
	// Output:
	// error: true
	// error: false
	// get nodes node-0: 500 "refused with 500" no-op: false
	// get nodes node-0: 200 "" no-op: false
	// get namespaces kube-public: 200 "" no-op: false
	// patch namespaces kube-public: 200 "" no-op: true
}

func ExampleParseFault() {
	fault, err := apiproxy.ParseFault("verb=delete,resource=pods,nth=2-4,refuse=429,retry-after=1s")
	fmt.Println(fault.From, fault.To, fault.Refuse, fault.RetryAfter, err)
	_, err = apiproxy.ParseFault("verb=delete,resource=pods")
	fmt.Println(err)
	// Output:
	// 2 4 429 1s <nil>
	// fault "verb=delete,resource=pods": it does not say what is to go wrong; give one of refuse=STATUS, delay=DURATION, answer-late=DURATION, hang=DURATION, late=DURATION, down=DURATION, lost=request, reply or late, watch=cut, expired, unobserved or no-bookmarks
}

// A controller acts as its ServiceAccount, so it is refused what its roles do not allow.
func ExampleProxy_ConfigFor() {
	ctx := context.Background()
	c, err := cluster.Shared()
	if err != nil {
		log.Fatal(err)
	}
	upstream, err := c.Config()
	if err != nil {
		log.Fatal(err)
	}
	proxy, err := apiproxy.Start(ctx, apiproxy.Options{Upstream: upstream})
	if err != nil {
		log.Fatal(err)
	}
	defer proxy.Stop()
	identity := rest.CopyConfig(upstream)
	identity.Impersonate.UserName = "system:serviceaccount:shop:frontend" // or cluster.ServiceAccountConfig
	config, err := proxy.ConfigFor(identity)
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.CoreV1().Secrets("shop").List(ctx, metav1.ListOptions{})
	fmt.Println(err)
	// Output:
	// secrets is forbidden: User "system:serviceaccount:shop:frontend" cannot list resource "secrets" in API group "" in the namespace "shop"
}

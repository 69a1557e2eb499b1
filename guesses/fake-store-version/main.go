// Fake-store-version prints up to which resourceVersion an informer's store is, with client-go's fake clientset and with the
// API server.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run(ctx, "fake", fake.NewClientset())
	run(ctx, "real", kubernetes.NewForConfigOrDie(client.Config()))
}

func run(ctx context.Context, name string, clientset kubernetes.Interface) {
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(client.Namespace()))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.StartWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	synced := informer.GetStore().LastStoreSyncResourceVersion()

	created, err := clientset.CoreV1().ConfigMaps(client.Namespace()).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for {
		if _, exists, err := informer.GetStore().GetByKey(client.Namespace() + "/web"); err != nil {
			log.Fatal(err)
		} else if exists {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Printf("%s: synced %q, then created %q, store %q\n", name, synced, created.ResourceVersion, informer.GetStore().LastStoreSyncResourceVersion())
}

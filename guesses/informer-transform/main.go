// Informer-transform runs an informer whose transform drops what its controller doesn't need.
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
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clientset, err := kubernetes.NewForConfig(client.Config())
	if err != nil {
		log.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(client.Namespace()),
		informers.WithTransform(func(object any) (any, error) {
			if configMap, ok := object.(*corev1.ConfigMap); ok {
				configMap.ManagedFields = nil
				configMap.ResourceVersion = ""
			}
			return object, nil
		}))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.StartWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	store := informer.GetStore()
	fmt.Printf("after the list: %q\n", store.LastStoreSyncResourceVersion())

	web := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	if web, err = clientset.CoreV1().ConfigMaps(client.Namespace()).Create(ctx, web, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	for informer.LastSyncResourceVersion() != web.ResourceVersion {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Printf("after the watch event %s: %q\n", web.ResourceVersion, store.LastStoreSyncResourceVersion())
}

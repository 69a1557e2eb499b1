// Informer-selector-lag watches an informer's store while objects outside of its label selector are written.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config := client.Config()
	config.QPS = -1
	clientset := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(client.Namespace()),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "app=web" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.StartWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	store := informer.GetStore()
	write := func(name string, labels map[string]string) (version string) {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: name, Labels: labels}}
		written, err := clientset.CoreV1().ConfigMaps(client.Namespace()).Create(ctx, configMap, metav1.CreateOptions{})
		if err != nil {
			log.Fatal(err)
		}
		return written.ResourceVersion
	}
	isBehind := func(version string) bool {
		order, err := resourceversion.CompareResourceVersion(store.LastStoreSyncResourceVersion(), version)
		if err != nil {
			log.Fatal(err)
		}
		return order < 0
	}

	behind := false
	for attempt := 0; attempt < 3 && !behind; attempt++ { // a bookmark may come just now, and the next one in a minute
		var last string
		for range 50 {
			last = write("other-", map[string]string{"app": "other"})
		}
		time.Sleep(2 * time.Second)
		behind = isBehind(last)
	}
	fmt.Println("after 50 writes of other objects, the store is behind:", behind)

	own := write("web-", map[string]string{"app": "web"})
	for len(store.ListKeys()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("after a write of an object with the label:", isBehind(own))
}

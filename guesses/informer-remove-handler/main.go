// Informer-remove-handler removes an event handler while one of its calls is in progress.
package main

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clientset := kubernetes.NewForConfigOrDie(client.Config())
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(client.Namespace()))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.StartWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)

	during(informer, "RemoveEventHandler", informer.RemoveEventHandler)
	during(informer, "ShutDownEventHandler", func(registration cache.ResourceEventHandlerRegistration) error {
		return cache.ShutDownEventHandler(informer, registration)
	})
}

// during removes a handler while its first call is in progress.
func during(informer cache.SharedIndexInformer, name string, remove func(cache.ResourceEventHandlerRegistration) error) {
	started := make(chan struct{}, 100)
	var running atomic.Bool
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		running.Store(true)
		started <- struct{}{}
		time.Sleep(2 * time.Second)
		running.Store(false)
	}})
	if err != nil {
		log.Fatal(err)
	}
	<-started
	if err := remove(registration); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s has returned; the handler is running: %t\n", name, running.Load())
}

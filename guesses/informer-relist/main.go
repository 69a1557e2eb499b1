// Informer-relist runs an informer whose watch breaks: it misses three changes, and then ends with 410 Gone.
package main

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/controllers/guesses/internal/client"
)

const selector = "app=web"

func main() {
	klog.SetLogger(klog.Logger{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	configMaps := kubernetes.NewForConfigOrDie(client.Config()).CoreV1().ConfigMaps(client.Namespace())
	var broken atomic.Bool
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return configMaps.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			w, err := configMaps.Watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
				if broken.Load() && event.Type == watch.Added { // the last of the three changes
					broken.Store(false)
					return watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("too old").ErrStatus}, true
				}
				return event, !broken.Load()
			}), nil
		},
	}, &corev1.ConfigMap{}, 0, nil)

	calls := make(chan string)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { calls <- "add " + object.(*corev1.ConfigMap).Name },
		UpdateFunc: func(before, after any) {
			is, was := after.(*corev1.ConfigMap), before.(*corev1.ConfigMap)
			calls <- fmt.Sprintf("update %s, same resourceVersion: %t", is.Name, is.ResourceVersion == was.ResourceVersion)
		},
		DeleteFunc: func(object any) { calls <- fmt.Sprintf("delete, with a %T", object) },
	}); err != nil {
		log.Fatal(err)
	}
	go informer.RunWithContext(ctx)
	for range 4 {
		<-calls
	}

	broken.Store(true)
	if err := change(ctx, configMaps); err != nil {
		log.Fatal(err)
	}
	for {
		select {
		case call := <-calls:
			fmt.Println(call)
		case <-time.After(3 * time.Second):
			return
		}
	}
}

func change(ctx context.Context, configMaps typedcorev1.ConfigMapInterface) error {
	if err := configMaps.Delete(ctx, "deleted", metav1.DeleteOptions{}); err != nil {
		return err
	}
	patch := []byte(`{"data": {"color": "blue"}}`)
	if _, err := configMaps.Patch(ctx, "changed", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "created", Labels: map[string]string{"app": "web"}}}
	_, err := configMaps.Create(ctx, created, metav1.CreateOptions{})
	return err
}

// Program copier is a controller for the tests of package draft. It keeps the ConfigMap "copy" as the ConfigMap "source" is, in every
// namespace that has one. With BUG=no-repair in its environment, it does not look at the copy; with BUG=gives-up, it does not repeat
// a write that has failed. It listens on --address, if there is one, and says nothing there.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

type copier struct {
	client     kubernetes.Interface
	configMaps corev1listers.ConfigMapLister
	bug        string
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig")
	address := flag.String("address", "", "host:port to listen on")
	flag.Parse()
	if *address != "" {
		listener, err := net.Listen("tcp", *address)
		if err != nil {
			fmt.Fprintln(os.Stderr, "copier:", err)
			os.Exit(1)
		}
		defer listener.Close()
	}
	if err := run(*kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "copier:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps()
	c := copier{client, informer.Lister(), os.Getenv("BUG")}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 2*time.Second))
	add := func(object any) {
		if m, is := object.(*corev1.ConfigMap); is && (m.Name == "source" || m.Name == "copy" && c.bug != "no-repair") {
			queue.Add(m.Namespace)
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
		DeleteFunc: func(object any) {
			if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
				object = unknown.Obj
			}
			add(object)
		},
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	context.AfterFunc(ctx, queue.ShutDown)
	for {
		namespace, shutdown := queue.Get()
		if shutdown {
			factory.Shutdown()
			return nil
		}
		if err := c.copy(ctx, namespace); err != nil && c.bug != "gives-up" {
			queue.AddRateLimited(namespace)
		} else {
			queue.Forget(namespace)
		}
		queue.Done(namespace)
	}
}

// copy makes the copy in a namespace as the source is.
func (c copier) copy(ctx context.Context, namespace string) error {
	source, err := c.configMaps.ConfigMaps(namespace).Get("source")
	if apierrors.IsNotFound(err) {
		err := c.client.CoreV1().ConfigMaps(namespace).Delete(ctx, "copy", metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	if copied, err := c.configMaps.ConfigMaps(namespace).Get("copy"); err == nil && copied.Data["greeting"] == source.Data["greeting"] {
		return nil
	}
	object := corev1apply.ConfigMap("copy", namespace).WithData(map[string]string{"greeting": source.Data["greeting"]})
	_, err = c.client.CoreV1().ConfigMaps(namespace).Apply(ctx, object, metav1.ApplyOptions{FieldManager: "copier", Force: true})
	return err
}

// Program inventory is a controller for torture's own tests. It keeps a ConfigMap in the namespace inventory for each Node
// and for each Namespace, but for those of Kubernetes itself.
//
// With BUG=namespaces-stay in its environment, it does not delete the ConfigMap of a Namespace that is gone.
// With BUG=deletes-what-it-did-not-create, it deletes ConfigMaps that are called recipe.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace = "inventory"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
	run(ctx, kubernetes.NewForConfigOrDie(config))
}

func run(ctx context.Context, client kubernetes.Interface) {
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes, namespaces := factory.Core().V1().Nodes(), factory.Core().V1().Namespaces()
	configMaps := factory.Core().V1().ConfigMaps()
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // the next reconcile sees this change too
		}
	}
	for _, informer := range []cache.SharedIndexInformer{nodes.Informer(), namespaces.Informer(), configMaps.Informer()} {
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, DeleteFunc: func(any) { notify() },
		})
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	reconcile := func(context.Context) error {
		if os.Getenv("BUG") == "deletes-what-it-did-not-create" {
			all, err := configMaps.Lister().List(labels.Everything())
			if err != nil {
				return err
			}
			for _, c := range all {
				if c.Name == "recipe" {
					if err := client.CoreV1().ConfigMaps(c.Namespace).Delete(context.Background(), c.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
						return err
					}
				}
			}
		}
		want := map[string]bool{}
		allNodes, err := nodes.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		for _, node := range allNodes {
			want["node-"+node.Name] = true
		}
		allNamespaces, err := namespaces.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		for _, n := range allNamespaces {
			if !strings.HasPrefix(n.Name, "kube-") && n.DeletionTimestamp == nil {
				want["namespace-"+n.Name] = true
			}
		}
		have, err := configMaps.Lister().ConfigMaps(namespace).List(labels.Set{"app": "inventory"}.AsSelector())
		if err != nil {
			return err
		}
		for _, c := range have {
			if want[c.Name] {
				delete(want, c.Name)
				continue
			}
			if os.Getenv("BUG") == "namespaces-stay" && strings.HasPrefix(c.Name, "namespace-") {
				continue
			}
			err := client.CoreV1().ConfigMaps(namespace).Delete(context.Background(), c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		for name := range want {
			_, err := client.CoreV1().ConfigMaps(namespace).Create(context.Background(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "inventory"}}}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		for delay := 100 * time.Millisecond; ; delay = min(2*delay, 2*time.Second) {
			err := reconcile(ctx)
			if err == nil || errors.Is(err, context.Canceled) {
				break
			}
			fmt.Fprintln(os.Stderr, "inventory:", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
			}
		}
	}
}

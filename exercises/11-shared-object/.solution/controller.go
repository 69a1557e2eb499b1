// Package sharedobject annotates each Node with its rack.
package sharedobject

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Rack is the annotation with the rack of a Node.
const Rack = "racks.controllers.example.com/rack"

// Controller annotates Nodes. The rack is the part of a Node's name before the first dash: r7-node3 is in rack r7.
type Controller struct {
	Client kubernetes.Interface

	nodes listers.NodeLister
	queue workqueue.TypedRateLimitingInterface[string] // names of Nodes
}

// Run reconciles until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactory(c.Client, 0)
	defer factory.Shutdown()
	c.nodes = factory.Core().V1().Nodes().Lister()
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	_, err := factory.Core().V1().Nodes().TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc:    func(node *corev1.Node) { c.queue.Add(node.Name) },
		UpdateFunc: func(_, node *corev1.Node) { c.queue.Add(node.Name) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		c.queue.ShutDown()
		return nil // ctx was cancelled first
	}
	var worker sync.WaitGroup
	worker.Go(func() {
		for c.processNextWorkItem(ctx) {
		}
	})
	<-ctx.Done()
	c.queue.ShutDown()
	worker.Wait()
	return nil
}

func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.reconcile(ctx, name); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff")
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// reconcile writes the annotation if it is missing or wrong.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	rack, _, _ := strings.Cut(name, "-")
	if node.Annotations[Rack] == rack {
		klog.FromContext(ctx).Info("The rack is up to date", "node", name, "rack", rack)
		return nil
	}
	updated := node.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, Rack, rack)
	if _, err := c.Client.CoreV1().Nodes().Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("annotate Node %s: %w", name, err)
	}
	return nil
}

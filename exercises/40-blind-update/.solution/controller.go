// Package blindupdate decides which Nodes may reboot.
package blindupdate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// The annotations of a Node on its way to a reboot.
const (
	Needed     = "reboot.controllers.example.com/reboot-needed"      // the administrator asks for a reboot
	Now        = "reboot.controllers.example.com/reboot-now"         // the controller has admitted the Node
	InProgress = "reboot.controllers.example.com/reboot-in-progress" // the Node's agent is rebooting it
)

// retryAfter is how long a Node waits before it is considered again.
const retryAfter = 10 * time.Second

// Controller admits Nodes that need a reboot, as long as fewer than MaxUnavailable Nodes are unavailable.
type Controller struct {
	Client         kubernetes.Interface
	MaxUnavailable int

	queue workqueue.TypedRateLimitingInterface[string] // names of Nodes
}

// Run reconciles until ctx is cancelled. There is one worker, so that no two Nodes are admitted at the same time.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactory(c.Client, 0)
	defer factory.Shutdown()
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
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff", "node", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// reconcile admits a Node that needs a reboot, if there is a free slot. It reads the Nodes from the API server: the
// cache may not show the last admission yet.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	i := slices.IndexFunc(list.Items, func(node corev1.Node) bool { return node.Name == name })
	if i < 0 || !has(&list.Items[i], Needed) {
		return nil
	}
	node := &list.Items[i]
	if count := unavailable(list.Items, node); count >= c.MaxUnavailable {
		klog.FromContext(ctx).Info("No free slot", "node", name, "unavailable", count)
		c.queue.AddAfter(name, retryAfter)
		return nil
	}
	delete(node.Annotations, Needed)
	node.Annotations[Now] = ""
	// The update has the resourceVersion of the list. If the Node has changed since, the queue repeats the whole decision.
	if _, err := c.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("admit Node %s: %w", name, err)
	}
	klog.FromContext(ctx).Info("Admitted", "node", name)
	return nil
}

// unavailable returns how many other Nodes are unavailable. The reboot of a candidate that is not ready makes no Node
// unavailable, so it waits only for Nodes that have been admitted.
func unavailable(nodes []corev1.Node, candidate *corev1.Node) int {
	count := 0
	for _, node := range nodes {
		admitted := has(&node, Now) || has(&node, InProgress)
		if node.Name != candidate.Name && (admitted || isReady(candidate) && !isReady(&node)) {
			count++
		}
	}
	return count
}

// has returns whether a Node has an annotation.
func has(node *corev1.Node, annotation string) bool {
	_, ok := node.Annotations[annotation]
	return ok
}

// isReady returns whether a Node can run Pods.
func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

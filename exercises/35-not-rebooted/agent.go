// Package notrebooted reboots the machine that it runs on.
package notrebooted

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// The annotations of a Node on its way to a reboot.
const (
	Now        = "reboot.controllers.example.com/reboot-now"         // the controller has admitted the Node
	InProgress = "reboot.controllers.example.com/reboot-in-progress" // the agent reboots it; the boot ID before
)

// Machine is the machine that the agent runs on.
type Machine interface {
	BootID() string // identifies the current boot; different after each reboot
	// Reboot reboots the machine. It returns an error if the machine refuses; otherwise the agent is stopped with it.
	Reboot(ctx context.Context) error
}

// Agent reboots its machine when the controller has admitted its Node, and removes InProgress when that is done: then the
// next Node may reboot.
type Agent struct {
	Client   kubernetes.Interface
	NodeName string
	Machine  Machine

	nodes listers.NodeLister
	queue workqueue.TypedRateLimitingInterface[string]
}

// Run reconciles until ctx is cancelled.
func (a *Agent) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(a.Client, 0,
		informers.WithTweakListOptions(func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, a.NodeName).String()
		}))
	defer factory.Shutdown()
	a.nodes = factory.Core().V1().Nodes().Lister()
	a.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	_, err := factory.Core().V1().Nodes().TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc:    func(node *corev1.Node) { a.queue.Add(node.Name) },
		UpdateFunc: func(_, node *corev1.Node) { a.queue.Add(node.Name) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		a.queue.ShutDown()
		return nil // ctx was cancelled first
	}
	var worker sync.WaitGroup
	worker.Go(func() {
		for a.processNextWorkItem(ctx) {
		}
	})
	<-ctx.Done()
	a.queue.ShutDown()
	worker.Wait()
	return nil
}

func (a *Agent) processNextWorkItem(ctx context.Context) bool {
	name, shutdown := a.queue.Get()
	if shutdown {
		return false
	}
	defer a.queue.Done(name)
	if err := a.reconcile(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff", "node", name)
		a.queue.AddRateLimited(name)
		return true
	}
	a.queue.Forget(name)
	return true
}

// reconcile does what the Node's annotations ask for.
func (a *Agent) reconcile(ctx context.Context) error {
	node, err := a.nodes.Get(a.NodeName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, now := node.Annotations[Now]
	before, inProgress := node.Annotations[InProgress]
	switch {
	case inProgress:
		// The agent is running again, so the machine is back.
		klog.FromContext(ctx).Info("Rebooted", "before", before, "now", a.Machine.BootID())
		return a.annotate(ctx, node, func(annotations map[string]string) { delete(annotations, InProgress) })
	case now:
		err := a.annotate(ctx, node, func(annotations map[string]string) {
			delete(annotations, Now)
			annotations[InProgress] = a.Machine.BootID()
		})
		if err != nil {
			return err
		}
		return a.reboot(ctx)
	}
	return nil
}

func (a *Agent) reboot(ctx context.Context) error {
	klog.FromContext(ctx).Info("Rebooting", "node", a.NodeName)
	if err := a.Machine.Reboot(ctx); err != nil {
		return fmt.Errorf("reboot %s: %w", a.NodeName, err)
	}
	return nil
}

// annotate changes the annotations of the Node. It fails with a conflict if the Node has changed since it was read.
func (a *Agent) annotate(ctx context.Context, node *corev1.Node, change func(map[string]string)) error {
	node = node.DeepCopy() // the object in the cache is shared
	change(node.Annotations)
	if _, err := a.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("annotate Node %s: %w", node.Name, err)
	}
	return nil
}

// Package naive is the reboot operator as a talk would show it: a controller and an agent in about a hundred lines. The
// lesson's page shows what it gets wrong. Do not run it on machines that matter.
package naive

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	rebootNeeded     = "reboot.controllers.example.com/reboot-needed"
	rebootNow        = "reboot.controllers.example.com/reboot-now"
	rebootInProgress = "reboot.controllers.example.com/reboot-in-progress"

	maxUnavailable = 1
	resync         = 5 * time.Second
)

// RunController tells Nodes that need a reboot to reboot, one after another.
func RunController(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, resync)
	nodes := factory.Core().V1().Nodes()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { queue.Add(obj.(*corev1.Node).Name) },
		UpdateFunc: func(_, obj any) { queue.Add(obj.(*corev1.Node).Name) },
	}); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	klog.Info("Caches synced")
	for {
		name, _ := queue.Get()
		err := markForReboot(ctx, client, nodes.Lister(), name)
		if err != nil && queue.NumRequeues(name) < 5 {
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

func markForReboot(ctx context.Context, client kubernetes.Interface, lister listers.NodeLister, name string) error {
	node, err := lister.Get(name)
	if err != nil {
		return err
	}
	if !has(node, rebootNeeded) {
		return nil
	}
	nodes, err := lister.List(labels.Everything())
	if err != nil {
		return err
	}
	unavailable := 0
	for _, n := range nodes {
		if isNotReady(n) || has(n, rebootNow) || has(n, rebootInProgress) {
			unavailable++
		}
	}
	if unavailable >= maxUnavailable {
		return fmt.Errorf("%d Nodes are unavailable", unavailable)
	}
	node = node.DeepCopy() // objects in the cache must not be modified
	delete(node.Annotations, rebootNeeded)
	node.Annotations[rebootNow] = "true"
	klog.InfoS("Telling the agent to reboot", "node", name)
	_, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return err
}

// RunAgent reboots the machine with a command when its Node is marked for it.
func RunAgent(ctx context.Context, client kubernetes.Interface, nodeName string, command []string) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, nodeName).String()
	}))
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) {
			node := obj.(*corev1.Node).DeepCopy()
			switch {
			case has(node, rebootNow):
				delete(node.Annotations, rebootNow)
				node.Annotations[rebootInProgress] = "true"
				if _, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
					return // the next update tries again
				}
				klog.InfoS("Rebooting", "node", nodeName)
				_ = exec.Command(command[0], command[1:]...).Run()
				select {} // until the machine goes down
			case has(node, rebootInProgress): // and the agent is running again
				delete(node.Annotations, rebootInProgress)
				if _, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err == nil {
					klog.InfoS("Rebooted", "node", nodeName)
				}
			}
		},
	}); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	return nil
}

func has(node *corev1.Node, annotation string) bool {
	_, ok := node.Annotations[annotation]
	return ok
}

func isNotReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionFalse
		}
	}
	return false
}

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"example.com/controllers/harness/machine"
)

// rebootController carries out the reboots that are written on the Nodes of machines. It keeps nothing in memory:
// what is done next follows from the Node, so a reboot continues after a restart of the control plane.
type rebootController struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister // all machines
	queue  workqueue.TypedRateLimitingInterface[string]
}

// newRebootController makes the controller. nodes has all machines.
func newRebootController(client kubernetes.Interface, nodes coreinformers.NodeInformer) (*rebootController, error) {
	c := &rebootController{
		client: client,
		nodes:  nodes.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Second)),
	}
	enqueue := func(object any) {
		if node := object.(*corev1.Node); node.Annotations[machine.RebootingAnnotation] != "" {
			c.queue.Add(node.Name)
		}
	}
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
	}); err != nil {
		return nil, fmt.Errorf("watch nodes to reboot them: %w", err)
	}
	return c, nil
}

// run runs the controller until ctx is cancelled.
func (c *rebootController) run(ctx context.Context) {
	for range 4 {
		go func() {
			for c.processNextWorkItem(ctx) {
			}
		}()
	}
	<-ctx.Done()
	c.queue.ShutDown()
}

func (c *rebootController) processNextWorkItem(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	node, err := c.nodes.Get(name)
	if err != nil {
		return true // removed
	}
	after, err := c.advance(ctx, node)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		c.queue.AddRateLimited(name) // the cache is stale
	case err != nil && ctx.Err() == nil:
		klog.FromContext(ctx).Error(err, "Reboot not continued; retrying", "node", name)
		c.queue.AddRateLimited(name)
	default:
		c.queue.Forget(name)
	}
	if after > 0 {
		c.queue.AddAfter(name, after)
	}
	return true
}

// advance makes the next write of a reboot. The informer enqueues the Node again when it has changed. If nothing is
// to be written yet, after is when to call advance again.
func (c *rebootController) advance(ctx context.Context, node *corev1.Node) (after time.Duration, err error) {
	reboot, err := machine.RebootOf(node)
	if err != nil || reboot == nil {
		return 0, err
	}
	switch {
	case reboot.Behavior.ReportsShutdown() && isReady(node): // also if the kubelet's last report was late
		return 0, c.reportShutdown(ctx, node)
	case machine.IsOn(node):
		return 0, machine.CutPower(ctx, c.client, node, reboot)
	case reboot.Behavior == machine.Hang:
		return 0, nil
	}
	if reboot.OffSince != nil {
		if remaining := time.Until(reboot.OffSince.Add(reboot.BootTime.Duration)); remaining > 0 {
			return remaining, nil
		}
	}
	return 0, machine.Boot(ctx, c.client, node)
}

// reportShutdown reports Ready=False as a kubelet does that shuts down gracefully with its machine.
func (c *rebootController) reportShutdown(ctx context.Context, node *corev1.Node) error {
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
		"status": map[string]any{"conditions": []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "node is shutting down",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

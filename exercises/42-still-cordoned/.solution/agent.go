// Package stillcordoned cordons a Node while it reboots.
package stillcordoned

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// The annotations of a Node.
const (
	// Now asks for a reboot. Its value is the machine's boot ID when the reboot was asked for. The agent removes it when it is
	// done.
	Now      = "reboot.controllers.example.com/reboot-now"
	Cordoned = "reboot.controllers.example.com/cordoned" // the agent has cordoned the Node; nobody else had before
)

// Machine is the machine that the agent runs on.
type Machine interface {
	BootID() string                   // identifies the current boot; different after each reboot
	Reboot(ctx context.Context) error // returns when the machine is back
}

// Agent reboots its machine when its Node asks for it.
type Agent struct {
	Client   kubernetes.Interface
	NodeName string
	Machine  Machine
	Interval time.Duration // the pause from the end of one iteration to the start of the next
}

// Run reconciles until ctx is cancelled.
func (a *Agent) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := a.reconcile(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reconcile failed, will retry", "node", a.NodeName)
		}
		select {
		case <-time.After(a.Interval):
		case <-ctx.Done():
		}
	}
	return nil
}

func (a *Agent) reconcile(ctx context.Context) error {
	node, err := a.Client.CoreV1().Nodes().Get(ctx, a.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get Node %s: %w", a.NodeName, err)
	}
	if before, now := node.Annotations[Now]; !now || before != a.Machine.BootID() {
		return a.finish(ctx, node)
	}
	if err := a.begin(ctx, node); err != nil {
		return err
	}
	return a.Machine.Reboot(ctx)
}

// begin cordons the Node. It leaves a Node alone that somebody has cordoned before.
func (a *Agent) begin(ctx context.Context, node *corev1.Node) error {
	if node.Spec.Unschedulable {
		return nil
	}
	node.Spec.Unschedulable = true
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, Cordoned, time.Now().UTC().Format(time.RFC3339))
	if _, err := a.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("cordon Node %s: %w", node.Name, err)
	}
	return nil
}

// finish makes the Node schedulable again and removes the agent's annotations.
func (a *Agent) finish(ctx context.Context, node *corev1.Node) error {
	_, now := node.Annotations[Now]
	_, cordoned := node.Annotations[Cordoned]
	if !now && !cordoned {
		return nil // nothing to do
	}
	if cordoned {
		node.Spec.Unschedulable = false
	}
	delete(node.Annotations, Now)
	delete(node.Annotations, Cordoned)
	if _, err := a.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("uncordon Node %s: %w", node.Name, err)
	}
	return nil
}

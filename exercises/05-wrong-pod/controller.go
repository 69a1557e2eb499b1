// Package wrongpod moves Pods off Nodes that need maintenance.
package wrongpod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Maintenance is the label of a Node that needs maintenance.
const Maintenance = "nodes.controllers.example.com/maintenance"

// Mover deletes the Pods of a namespace that run on a Node with the label Maintenance. Their owner replaces them, on
// another Node.
type Mover struct {
	Client    kubernetes.Interface
	Namespace string
	Interval  time.Duration // the pause from the end of one iteration to the start of the next
}

// Run reconciles until ctx is cancelled.
func (m *Mover) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := m.reconcile(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reconcile failed, will retry in the next iteration")
		}
		select {
		case <-time.After(m.Interval):
		case <-ctx.Done():
		}
	}
	return nil
}

// reconcile is one iteration.
func (m *Mover) reconcile(ctx context.Context) error {
	pods, err := m.Client.CoreV1().Pods(m.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Pods in namespace %s: %w", m.Namespace, err)
	}
	var errs []error
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			continue
		}
		node, err := m.Client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			errs = append(errs, fmt.Errorf("get Node %s: %w", pod.Spec.NodeName, err))
			continue
		}
		if _, ok := node.Labels[Maintenance]; !ok {
			continue
		}
		errs = append(errs, m.move(ctx, &pod))
	}
	return errors.Join(errs...)
}

func (m *Mover) move(ctx context.Context, pod *corev1.Pod) error {
	klog.FromContext(ctx).Info("The Node needs maintenance, deleting the Pod", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	err := m.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

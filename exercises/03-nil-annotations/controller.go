// Package nilannotations records on each Node when it was first seen.
package nilannotations

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// FirstSeen is the annotation with the time at which the controller saw a Node for the first time, in RFC 3339.
const FirstSeen = "nodes.controllers.example.com/first-seen"

// Stamper annotates all Nodes.
type Stamper struct {
	Client   kubernetes.Interface
	Interval time.Duration // the pause from the end of one iteration to the start of the next
}

// Run reconciles until ctx is cancelled.
func (s *Stamper) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.reconcile(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reconcile failed, will retry in the next iteration")
		}
		select {
		case <-time.After(s.Interval):
		case <-ctx.Done():
		}
	}
	return nil
}

// reconcile annotates the Nodes that have no annotation yet. A Node that cannot be updated does not hold up the others.
func (s *Stamper) reconcile(ctx context.Context) error {
	nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	var errs []error
	for _, node := range nodes.Items {
		if _, ok := node.Annotations[FirstSeen]; ok {
			continue
		}
		errs = append(errs, s.stamp(ctx, &node))
	}
	return errors.Join(errs...)
}

func (s *Stamper) stamp(ctx context.Context, node *corev1.Node) error {
	node.Annotations[FirstSeen] = time.Now().UTC().Format(time.RFC3339)
	if _, err := s.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("annotate Node %s: %w", node.Name, err)
	}
	return nil
}

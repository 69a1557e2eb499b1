package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Change is what a transition writes. A nil value removes the annotation.
type Change struct {
	Annotations   map[string]*string
	Unschedulable *bool // nil leaves the Node as it is
}

// Set returns a change that sets an annotation.
func (c Change) Set(annotation, value string) Change {
	c.Annotations[annotation] = &value
	return c
}

// Remove returns a change that removes annotations.
func (c Change) Remove(annotations ...string) Change {
	for _, annotation := range annotations {
		c.Annotations[annotation] = nil
	}
	return c
}

// NewChange returns a change that changes nothing yet.
func NewChange() Change { return Change{Annotations: map[string]*string{}} }

// End returns the change that ends an attempt: the slot is free, and the Node is schedulable again if we cordoned it.
func End(node *corev1.Node, now time.Time) Change {
	c := NewChange().Remove(NowAnnotation, InProgressAnnotation, AdmittedAnnotation, AdmittedByAnnotation, CordonedAnnotation, SinceAnnotation).
		Set(LastAttemptAnnotation, FormatTime(now))
	if _, ours := node.Annotations[CordonedAnnotation]; ours {
		c.Unschedulable = new(false)
	}
	return c
}

// Write changes a Node, on the condition that it is still the one that was read, and unchanged: otherwise the error is a
// Conflict. It is a patch because an update would drop the fields that are newer than our client library.
func Write(ctx context.Context, client kubernetes.Interface, node *corev1.Node, c Change) (*corev1.Node, error) {
	object := map[string]any{"metadata": map[string]any{
		"uid": node.UID, "resourceVersion": node.ResourceVersion, "annotations": c.Annotations,
	}}
	if c.Unschedulable != nil {
		object["spec"] = map[string]any{"unschedulable": *c.Unschedulable}
	}
	patch, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("change Node %s: %w", node.Name, err)
	}
	changed, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("change Node %s: %w", node.Name, err)
	}
	return changed, nil
}

// IgnoreNotFound returns nil if an error says that an object does not exist.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Package forbidden replaces the Pods of the frontend when their config changes, by deleting them; their Deployment creates
// new ones.
package forbidden

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

// ConfigName is the name of the ConfigMap that the Pods of the frontend read when they start.
const ConfigName = "frontend-config"

// Controller replaces stale Pods in one namespace.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string        // the only namespace whose Pods it deletes
	Interval  time.Duration // the pause from the end of one iteration to the start of the next
}

// Run reconciles until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := c.reconcile(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reconcile failed, will retry in the next iteration")
		}
		select {
		case <-time.After(c.Interval):
		case <-ctx.Done():
		}
	}
	return nil
}

// reconcile deletes the Pods that are older than their config.
func (c *Controller) reconcile(ctx context.Context) error {
	config, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, ConfigName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get ConfigMap %s/%s: %w", c.Namespace, ConfigName, err)
	}
	pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=frontend"})
	if err != nil {
		return fmt.Errorf("list the Pods of the frontend: %w", err)
	}
	var errs []error
	for _, pod := range pods.Items {
		if pod.Namespace != c.Namespace || !isStale(&pod, lastChange(config), time.Now()) {
			continue
		}
		err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete Pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// lastChange returns the time of the last write to the config.
func lastChange(config *corev1.ConfigMap) time.Time {
	last := config.CreationTimestamp.Time
	for _, manager := range config.ManagedFields {
		if manager.Time != nil && manager.Time.After(last) {
			last = manager.Time.Time
		}
	}
	return last
}

// isStale returns whether a Pod may have read an older config. Timestamps are whole seconds; see lesson 1.
func isStale(pod *corev1.Pod, configChanged, now time.Time) bool {
	if pod.DeletionTimestamp != nil || now.Sub(configChanged) < time.Second {
		return false
	}
	return !pod.CreationTimestamp.After(configChanged)
}

// Package pollends deletes the Pods of a namespace that have succeeded.
package pollends

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Janitor deletes the Pods of one namespace that have succeeded.
type Janitor struct {
	Client    kubernetes.Interface
	Namespace string
	Interval  time.Duration // the time from the start of one iteration to the start of the next
}

// Run reconciles until ctx is cancelled.
func (j *Janitor) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	err := wait.PollUntilContextCancel(ctx, j.Interval, true, func(ctx context.Context) (done bool, err error) {
		if err := j.reconcile(ctx); err != nil {
			logger.Error(err, "Reconcile failed, will retry in the next iteration")
			return false, err
		}
		return false, nil
	})
	logger.Info("Stopped", "reason", err)
	return nil
}

// reconcile is one iteration.
func (j *Janitor) reconcile(ctx context.Context) error {
	pods, err := j.Client.CoreV1().Pods(j.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Pods in namespace %s: %w", j.Namespace, err)
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase != corev1.PodSucceeded || pod.DeletionTimestamp != nil {
			continue
		}
		err := j.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

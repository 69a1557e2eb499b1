// Package emptylist keeps copies of the Secrets of one namespace in another one.
package emptylist

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// CopyOf is the label of a copy. Its value is the name of the source.
const CopyOf = "secrets.controllers.example.com/copy-of"

// Copier copies all Secrets of namespace From to namespace To.
type Copier struct {
	Client   kubernetes.Interface
	From, To string
	Interval time.Duration // the pause from the end of one iteration to the start of the next
}

// Run reconciles until ctx is cancelled.
func (c *Copier) Run(ctx context.Context) error {
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

// reconcile creates what is missing and deletes what is too much. To keep it short, it does not update copies.
func (c *Copier) reconcile(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	sources, err := c.Client.CoreV1().Secrets(c.From).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the sources in namespace %s: %w", c.From, err)
	}
	copies, err := c.Client.CoreV1().Secrets(c.To).List(ctx, metav1.ListOptions{LabelSelector: CopyOf})
	if err != nil {
		return fmt.Errorf("list the copies in namespace %s: %w", c.To, err)
	}

	orphans := map[string]bool{}
	for _, secret := range copies.Items {
		orphans[secret.Name] = true
	}
	for _, source := range sources.Items {
		if orphans[source.Name] {
			delete(orphans, source.Name) // it has its source
			continue
		}
		_, err := c.Client.CoreV1().Secrets(c.To).Create(ctx, copyOf(&source, c.To), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create Secret %s/%s: %w", c.To, source.Name, err)
		}
	}
	for name := range orphans {
		logger.Info("The source is gone, deleting the copy", "secret", klog.KRef(c.To, name))
		err := c.Client.CoreV1().Secrets(c.To).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Secret %s/%s: %w", c.To, name, err)
		}
	}
	return nil
}

func copyOf(source *corev1.Secret, namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: source.Name, Labels: map[string]string{CopyOf: source.Name}},
		Type:       source.Type,
		Data:       maps.Clone(source.Data),
	}
}

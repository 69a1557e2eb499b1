package whosesecret

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// reconcile creates, updates and deletes copies. What fails does not hold up the rest.
func (c *Controller) reconcile(ctx context.Context) error {
	sources, err := c.secrets.Secrets(c.Source).List(labels.Everything())
	if err != nil {
		return err
	}
	namespaces, err := c.namespaces.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, namespace := range namespaces {
		if namespace.Name != c.Source {
			errs = append(errs, c.reconcileNamespace(ctx, namespace, sources))
		}
	}
	return errors.Join(errs...)
}

// reconcileNamespace makes the copies in one namespace match the sources.
func (c *Controller) reconcileNamespace(ctx context.Context, namespace *corev1.Namespace, sources []*corev1.Secret) error {
	var errs []error
	wanted := map[string]bool{}
	if has(namespace, Sync) {
		for _, source := range sources {
			if has(source, Sync) {
				wanted[source.Name] = true
				if namespace.DeletionTimestamp == nil { // nothing can be created in a namespace that is being deleted
					errs = append(errs, c.ensureCopy(ctx, source, namespace.Name))
				}
			}
		}
	}
	existing, err := c.secrets.Secrets(namespace.Name).List(labels.Everything())
	if err != nil {
		return err
	}
	for _, secret := range existing {
		if isCopy(secret) && !wanted[secret.Name] {
			errs = append(errs, c.delete(ctx, secret))
		}
	}
	return errors.Join(errs...)
}

// ensureCopy creates or updates the copy of a Secret. A Secret of somebody else is left alone.
func (c *Controller) ensureCopy(ctx context.Context, source *corev1.Secret, namespace string) error {
	desired := copyOf(source, namespace)
	existing, err := c.secrets.Secrets(namespace).Get(source.Name)
	switch {
	case apierrors.IsNotFound(err):
		if _, err := c.Client.CoreV1().Secrets(namespace).Create(ctx, desired, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create Secret %s/%s: %w", namespace, source.Name, err)
		}
		return nil
	case err != nil:
		return err
	case !isCopy(existing):
		klog.FromContext(ctx).Info("There is a Secret of somebody else, leaving it alone", "secret", klog.KObj(existing))
		return nil
	case equality.Semantic.DeepEqual(existing.Data, desired.Data):
		return nil
	}
	updated := existing.DeepCopy() // the object in the cache is shared
	updated.Data = desired.Data
	if _, err := c.Client.CoreV1().Secrets(namespace).Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update Secret %s/%s: %w", namespace, source.Name, err)
	}
	return nil
}

func (c *Controller) delete(ctx context.Context, secret *corev1.Secret) error {
	err := c.Client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(secret.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s: %w", klog.KObj(secret), err)
	}
	return nil
}

// copyOf returns the copy of a Secret for a namespace.
func copyOf(source *corev1.Secret, namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: source.Name, Labels: map[string]string{CopyOf: source.Name}},
		Type:       source.Type,
		Data:       maps.Clone(source.Data),
	}
}

// isCopy returns whether the controller has created a Secret.
func isCopy(secret *corev1.Secret) bool {
	_, ok := secret.Labels[CopyOf]
	return ok
}

// has returns whether an object has an annotation.
func has(object metav1.Object, annotation string) bool {
	_, ok := object.GetAnnotations()[annotation]
	return ok
}

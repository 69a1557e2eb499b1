// Package gonealready deletes the ConfigMaps that a list names.
package gonealready

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// ListName is the name of the ConfigMap whose key "names" lists the ConfigMaps that must not exist, separated by
// spaces.
const ListName = "retired"

// Cleaner deletes the listed ConfigMaps of one namespace.
type Cleaner struct {
	Client    kubernetes.Interface
	Namespace string
	Interval  time.Duration // the pause from the end of one iteration to the start of the next
}

// Run reconciles until ctx is cancelled.
func (c *Cleaner) Run(ctx context.Context) error {
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

// reconcile deletes every ConfigMap in the list. One that cannot be deleted does not hold up the others.
func (c *Cleaner) reconcile(ctx context.Context) error {
	configMaps := c.Client.CoreV1().ConfigMaps(c.Namespace)
	list, err := configMaps.Get(ctx, ListName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get ConfigMap %s/%s: %w", c.Namespace, ListName, err)
	}
	var errs []error
	for _, name := range strings.Fields(list.Data["names"]) {
		err := configMaps.Delete(ctx, name, metav1.DeleteOptions{})
		switch {
		case err == nil:
			klog.FromContext(ctx).Info("Deleted", "configMap", klog.KRef(c.Namespace, name))
		case !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("delete ConfigMap %s/%s: %w", c.Namespace, name, err))
		}
	}
	return errors.Join(errs...)
}

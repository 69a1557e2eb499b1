package crd

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// sweep deletes orphans: what exists in the backend for Networks that no longer exist. An orphan is left when the cloud
// completes a creation after the controller has given up on it, when somebody removes the finalizer by hand, or when the
// API server deletes a Network in the very moment in which it gets the finalizer:
// https://github.com/kubernetes/kubernetes/issues/77988.
func (c *Controller) sweep(ctx context.Context) {
	logger := klog.FromContext(ctx)
	owners, err := c.backend.Owners(ctx)
	if err != nil {
		logger.Error(err, "Failed to list the owners of networks in the cloud, will retry")
		return
	}
	for _, owner := range owners {
		if c.queue.ShuttingDown() {
			return
		}
		logger := klog.LoggerWithValues(logger, "network", owner.Namespace+"/"+owner.Name, "uid", owner.UID)
		orphaned, err := c.isOrphaned(ctx, owner)
		if err == nil && orphaned {
			err = c.backend.Delete(ctx, &samplecrdv1.Network{ObjectMeta: metav1.ObjectMeta{
				Namespace: owner.Namespace, Name: owner.Name, UID: owner.UID,
			}})
			if err == nil {
				logger.Info("Deleted an orphaned network in the cloud")
			}
		}
		if err != nil {
			logger.Error(err, "Failed to delete a network in the cloud that may be orphaned, will retry")
		}
	}
}

// isOrphaned reports whether the owner no longer exists. That the cache does not have it is not enough, since the cache
// may be stale; only the API server knows. UIDs are never reused.
func (c *Controller) isOrphaned(ctx context.Context, owner Owner) (bool, error) {
	if cached, err := c.networks.Lister().Networks(owner.Namespace).Get(owner.Name); err == nil && cached.UID == owner.UID {
		return false, nil
	}
	// The name is from the network's description, which somebody may have edited.
	all, err := c.networks.Lister().List(labels.Everything())
	if err != nil || slices.ContainsFunc(all, func(n *samplecrdv1.Network) bool { return n.UID == owner.UID }) {
		return false, err
	}
	if owner.Name == "" {
		existing, err := c.client.SamplecrdV1().Networks(c.Namespace).List(ctx, metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(existing.Items, func(n samplecrdv1.Network) bool { return n.UID == owner.UID }), err
	}
	existing, err := c.client.SamplecrdV1().Networks(owner.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && existing.UID != owner.UID, err
}

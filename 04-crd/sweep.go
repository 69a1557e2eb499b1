package crd

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// sweep deletes what was made for Networks that are gone. The cloud may have made it so late that nobody waited
// for it any more, or somebody may have taken our finalizer off. Or the API server let a Network go that had no
// finalizer when it looked, and got ours before it was gone: https://github.com/kubernetes/kubernetes/issues/77988.
func (c *Controller) sweep(ctx context.Context) {
	logger := klog.FromContext(ctx)
	owners, err := c.backend.Owners(ctx)
	if err != nil {
		logger.Error(err, "Failed to look for what is left of Networks that are gone, will try again")
		return
	}
	for _, owner := range owners {
		if c.queue.ShuttingDown() {
			return
		}
		logger := klog.LoggerWithValues(logger, "network", owner.Namespace+"/"+owner.Name, "uid", owner.UID)
		gone, err := c.isGone(ctx, owner)
		if err == nil && gone {
			err = c.backend.Delete(ctx, &samplecrdv1.Network{ObjectMeta: metav1.ObjectMeta{
				Namespace: owner.Namespace, Name: owner.Name, UID: owner.UID,
			}})
			if err == nil {
				logger.Info("What was left of a Network that is gone is gone, too")
			}
		}
		if err != nil {
			logger.Error(err, "Failed to delete what is left of a Network that may be gone, will try again")
		}
	}
}

// isGone says whether a Network is no more. Our cache may not know it yet, so only the API server is believed. A
// UID does not come back.
func (c *Controller) isGone(ctx context.Context, owner Owner) (bool, error) {
	if cached, err := c.networks.Lister().Networks(owner.Namespace).Get(owner.Name); err == nil && cached.UID == owner.UID {
		return false, nil
	}
	there, err := c.client.SamplecrdV1().Networks(owner.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && there.UID != owner.UID, err
}

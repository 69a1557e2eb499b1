package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"example.com/controllers/harness/machine"
)

// The defaults of a kubelet.
const (
	leaseDuration = 40 * time.Second
	renewInterval = leaseDuration / 4
	renewJitter   = 0.04
)

// leaseController renews the Lease of every machine that is powered on, as its kubelet would.
//
// KWOK could do it, but then it ignores the Pods of a machine whose Lease it does not hold at the moment, and
// may never get back to them.
type leaseController struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister // all machines

	// queue has the name of every machine that is powered on, which it hands out when the next renewal is due. It may
	// have names of machines that no longer are.
	queue workqueue.TypedDelayingInterface[string]

	// written has the Lease (*coordinationv1.Lease) of each machine as this controller last wrote it, by name.
	written sync.Map
}

// newLeaseController makes the controller. nodes has all machines.
func newLeaseController(client kubernetes.Interface, nodes coreinformers.NodeInformer) (*leaseController, error) {
	c := &leaseController{client: client, nodes: nodes.Lister(), queue: workqueue.NewTypedDelayingQueue[string]()}
	if _, err := nodes.Informer().AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			node, ok := object.(*corev1.Node)
			return ok && machine.IsOn(node)
		},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(object any) { c.queue.Add(object.(*corev1.Node).Name) }},
	}); err != nil {
		return nil, fmt.Errorf("watch nodes to renew their leases: %w", err)
	}
	return c, nil
}

// run runs the controller until ctx is cancelled.
func (c *leaseController) run(ctx context.Context) {
	for range 4 {
		go func() {
			for c.processNextWorkItem(ctx) {
			}
		}()
	}
	<-ctx.Done()
	c.queue.ShutDown()
}

func (c *leaseController) processNextWorkItem(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	node, err := c.nodes.Get(name)
	if err != nil || !machine.IsOn(node) {
		c.written.Delete(name)
		return true // Removed or powered off. If it comes back, the informer adds it to the queue again.
	}
	if err := c.renew(ctx, node); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Lease not renewed; retrying at the next interval", "node", name)
	}
	c.queue.AddAfter(name, wait.Jitter(renewInterval, renewJitter))
	return true
}

// renew updates the Lease, or creates it. What this controller wrote last is the Lease as it is, unless somebody else has
// changed it since: then, and after a restart, it is patched, whatever its version is.
func (c *leaseController) renew(ctx context.Context, node *corev1.Node) error {
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, seconds := metav1.NowMicro(), int32(leaseDuration/time.Second)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name,
			// Set on every renewal: the Lease may be left from an earlier Node of this name.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	last, known := c.written.LoadAndDelete(node.Name)
	var written *coordinationv1.Lease
	var err error
	if known {
		update := last.(*coordinationv1.Lease).DeepCopy()
		update.OwnerReferences, update.Spec = lease.OwnerReferences, lease.Spec
		written, err = leases.Update(ctx, update, metav1.UpdateOptions{})
	}
	if !known {
		written, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		var patch []byte
		if patch, err = json.Marshal(lease); err != nil {
			return err
		}
		written, err = leases.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) { // it was deleted; the update of a Lease that is not there is a conflict with its UID
		written, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	written.ManagedFields = nil // half of it; an update without them leaves them as they are
	c.written.Store(node.Name, written)
	return nil
}

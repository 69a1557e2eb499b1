package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"example.com/controllers/harness/machine"
)

// These are kubelet's defaults.
const (
	leaseDuration = 40 * time.Second
	renewInterval = leaseDuration / 4
	renewJitter   = 0.04
)

// leases keeps the Lease of every machine that is on, as its kubelet would.
//
// KWOK can keep them too, but then it takes no notice of a machine's Pods while it does not see the
// machine's Lease as its own, and may never come back to those.
type leases struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister                   // the machines that are on, and no other Nodes
	due    workqueue.TypedDelayingInterface[string] // every machine in nodes, at the time of its next renewal
}

// keepLeases keeps them until ctx ends.
func keepLeases(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = machine.Selector }))
	l := &leases{
		client: client,
		nodes:  factory.Core().V1().Nodes().Lister(),
		due:    workqueue.NewTypedDelayingQueue[string](),
	}
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { l.due.Add(object.(*corev1.Node).Name) },
	}); err != nil {
		return fmt.Errorf("watch the nodes whose leases to keep: %w", err)
	}
	factory.Start(ctx.Done())
	for range 4 {
		go func() {
			for l.renewNext(ctx) {
			}
		}()
	}
	<-ctx.Done()
	l.due.ShutDown()
	return nil
}

func (l *leases) renewNext(ctx context.Context) bool {
	name, shutdown := l.due.Get()
	if shutdown {
		return false
	}
	defer l.due.Done(name)
	node, err := l.nodes.Get(name)
	if err != nil {
		return true // Gone or switched off. When it is back, it is added again.
	}
	if err := l.renew(ctx, node); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Lease not renewed, the next time may do", "node", name)
	}
	l.due.AddAfter(name, wait.Jitter(renewInterval, renewJitter))
	return true
}

func (l *leases) renew(ctx context.Context, node *corev1.Node) error {
	now, seconds := metav1.NowMicro(), int32(leaseDuration/time.Second)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name,
			// Said anew each time: the Lease that is there may be that of an earlier Node of this name.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	patch, err := json.Marshal(lease)
	if err != nil {
		return err
	}
	client := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_, err = client.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, lease, metav1.CreateOptions{})
	}
	return err
}

package main

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// honest is a client whose requests for Leases end with their contexts, as a real one's do. The fake clientset ignores contexts.
type honest struct{ kubernetes.Interface }

func (h honest) CoordinationV1() typedcoordinationv1.CoordinationV1Interface {
	return honestGroup{h.Interface.CoordinationV1()}
}

type honestGroup struct {
	typedcoordinationv1.CoordinationV1Interface
}

func (g honestGroup) Leases(namespace string) typedcoordinationv1.LeaseInterface {
	return honestLeases{g.CoordinationV1Interface.Leases(namespace)}
}

type honestLeases struct {
	typedcoordinationv1.LeaseInterface
}

func (l honestLeases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Get(ctx, name, options)
}

func (l honestLeases) Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Create(ctx, lease, options)
}

func (l honestLeases) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Update(ctx, lease, options)
}

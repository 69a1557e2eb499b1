package main

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// contextual is a client whose requests for Leases end with their contexts, as a real one's do. The fake clientset ignores contexts.
type contextual struct{ kubernetes.Interface }

func (c contextual) CoordinationV1() typedcoordinationv1.CoordinationV1Interface {
	return contextualGroup{c.Interface.CoordinationV1()}
}

type contextualGroup struct {
	typedcoordinationv1.CoordinationV1Interface
}

func (g contextualGroup) Leases(namespace string) typedcoordinationv1.LeaseInterface {
	return contextualLeases{g.CoordinationV1Interface.Leases(namespace)}
}

type contextualLeases struct {
	typedcoordinationv1.LeaseInterface
}

func (l contextualLeases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Get(ctx, name, options)
}

func (l contextualLeases) Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Create(ctx, lease, options)
}

func (l contextualLeases) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Update(ctx, lease, options)
}

// Package crd is a controller for a resource of one's own, Network, which makes what it describes outside of the
// cluster.
package crd

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// Backend is where the networks are made. Nobody tells us when something changes there.
//
// Whatever became of a call, even if nobody knows, it may be made again: in the end there is one network, or none.
type Backend interface {
	// Ensure makes the network and its subnet, or makes them what they should be again.
	Ensure(ctx context.Context, network *samplecrdv1.Network) (Made, error)
	// Delete deletes all that was ever made for this Network, and nothing else.
	Delete(ctx context.Context, network *samplecrdv1.Network) error
	// Owners returns the Networks for which there is something, whether they are still there or not.
	Owners(ctx context.Context) ([]Owner, error)
}

// Owner is a Network for which something was made.
type Owner struct {
	Namespace, Name string
	UID             types.UID
}

// Made is what is there, by its ids.
type Made struct{ NetworkID, SubnetID string }

// RefusedError is an error that the backend gives a reason for, so that a person may have to do something.
type RefusedError struct {
	Reason  string // one of the reasons in package v1
	Message string
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

// InUse says that the ports with these names are in the way.
func InUse(ports []string) error {
	return &RefusedError{samplecrdv1.ReasonInUse, "ports still use the network; delete them first: " + strings.Join(ports, ", ")}
}

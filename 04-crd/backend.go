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

// RefusedError says that the backend understood what it was asked for and will not do it until somebody changes
// something. Reason and Message are written to the Network's status.
type RefusedError struct {
	Reason  string // one of the reasons in package v1
	Message string // tells a person what to change
	Err     error  // the cause; nil if there is none
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// InUse returns the RefusedError for a network that cannot be deleted because of the ports with these names.
func InUse(ports []string, cause error) error {
	return &RefusedError{samplecrdv1.ReasonInUse, "ports still use the network; delete them first: " + strings.Join(ports, ", "), cause}
}

// Package crd is a controller for a custom resource, Network. It creates, in a cloud, the networks that the Networks
// describe, repairs them when they drift, and deletes them with their Networks.
package crd

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// Backend is where the networks are created. It has no watch.
//
// Every method is idempotent: a caller that does not know the outcome of a call may repeat it, and in the end there is
// one network, or none.
type Backend interface {
	// Ensure creates the network and its subnet, or changes them to match the Network's spec.
	Ensure(ctx context.Context, network *samplecrdv1.Network) (IDs, error)
	// Delete deletes everything that was ever created for this Network, and nothing else.
	Delete(ctx context.Context, network *samplecrdv1.Network) error
	// Owners returns the Networks for which something exists in the backend, whether or not the Networks still exist.
	Owners(ctx context.Context) ([]Owner, error)
}

// Owner is a Network for which something exists in the backend. Namespace and Name are empty if the backend no longer knows
// them; the namespace is the controller's then.
type Owner struct {
	Namespace, Name string
	UID             types.UID
}

// IDs are the backend's IDs of a network and its subnet.
type IDs struct{ NetworkID, SubnetID string }

// replacing says which of them are not those in a status, but others in their place. It returns "" if none is.
func (i IDs) replacing(before samplecrdv1.NetworkStatus) string {
	var replaced []string
	if before.NetworkID != "" && before.NetworkID != i.NetworkID {
		replaced = append(replaced, "network "+before.NetworkID+" by "+i.NetworkID)
	}
	if before.SubnetID != "" && before.SubnetID != i.SubnetID {
		replaced = append(replaced, "subnet "+before.SubnetID+" by "+i.SubnetID)
	}
	return strings.Join(replaced, ", ")
}

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
	const most = 10
	more := ""
	if len(ports) > most {
		more = fmt.Sprintf(", and %d more", len(ports)-most)
		ports = ports[:most]
	}
	return &RefusedError{samplecrdv1.ReasonInUse, "ports still use the network; delete them first: " + strings.Join(ports, ", ") + more, cause}
}

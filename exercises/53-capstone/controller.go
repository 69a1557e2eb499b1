// Package capstone creates a Service for each Deployment that asks for one.
package capstone

import (
	"context"

	"k8s.io/client-go/kubernetes"
)

// Port is the annotation of a Deployment that asks for a Service. Its value is the Service's port.
const Port = "services.controllers.example.com/port"

// Run keeps a Service for each annotated Deployment of the namespace until ctx is cancelled.
func Run(ctx context.Context, client kubernetes.Interface, namespace string) error {
	// Write me.
	<-ctx.Done()
	return nil
}

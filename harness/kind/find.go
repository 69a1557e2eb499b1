package kind

import (
	"context"
	"io"
	"slices"
	"strings"
)

// OfContext returns the cluster that a context of a kubeconfig names, for [Cluster.Load]; nil if kind has created none of
// that name on this computer. Its other fields are those of a cluster that is not connected.
func OfContext(ctx context.Context, contextName string, progress io.Writer) *Cluster {
	name, isKind := strings.CutPrefix(contextName, "kind-")
	if !isKind {
		return nil
	}
	c, err := open(ctx, Options{Name: name, Progress: progress})
	if err != nil {
		return nil
	}
	if names, err := c.provider.List(); err != nil || !slices.Contains(names, name) {
		return nil
	}
	return c
}

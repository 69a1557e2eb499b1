package cluster

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func list(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// describe names the files that a kubeconfig is read from.
func describe(rules *clientcmd.ClientConfigLoadingRules) string {
	return strings.Join(rules.Precedence, ", ")
}

package cluster

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// joinNames joins names with commas. If there are none, it returns none.
func joinNames(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// kubeconfigFiles lists the files that kubeconfigs are loaded from.
func kubeconfigFiles(rules *clientcmd.ClientConfigLoadingRules) string {
	return strings.Join(rules.Precedence, ", ")
}

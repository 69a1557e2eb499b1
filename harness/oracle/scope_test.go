package oracle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/oracle"
)

func TestParseNamePattern(t *testing.T) {
	for text, ok := range map[string]bool{
		"configmaps: lock-*": true,
		"configmaps:lock":    true,
		"":                   false,
		"lock-*":             false,
		"configmaps:":        false,
		": lock":             false,
		"*: lock":            false,
		"leases.x: lock":     false,
		"configmaps: [":      false,
	} {
		_, err := oracle.ParseNamePattern(text)
		require.Equal(t, ok, err == nil, "%q: %v", text, err)
	}
}

func named(namespace, name string) oracle.Object {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return oracle.Object{"metadata": metadata}
}

// Objects of a whole cluster are told apart by namespace and name; those of Kubernetes itself do not count.
func TestScopeOfACluster(t *testing.T) {
	state := oracle.State{
		"configmaps": {
			"a": named("shop", "a"), "kitchen/a": named("kitchen", "a"), "kube-system/a": named("kube-system", "a"),
			"kitchen/kube-root-ca.crt": named("kitchen", "kube-root-ca.crt"),
		},
		"namespaces": {"shop": named("", "shop"), "kube-public": named("", "kube-public")},
		"nodes":      {"node-0": named("", "node-0")},
	}
	before := oracle.Normalize(state, oracle.Scope{Namespace: "shop", Cluster: true}, nil)
	require.Len(t, before, 4)
	delete(state["configmaps"], "kitchen/a")
	delete(state["nodes"], "node-0")
	after := oracle.Normalize(state, oracle.Scope{Namespace: "shop", Cluster: true}, nil)
	require.Equal(t, "configmap kitchen/a is missing; node node-0 is missing", join(oracle.Compare(before, after)))
}

// A name with a UID in it, and one that matches a pattern, is the same name in each run.
func TestNamesThatDiffer(t *testing.T) {
	pattern, err := oracle.ParseNamePattern("configmaps: lock-*")
	require.NoError(t, err)
	run := func(uid, suffix string) []string {
		return oracle.Normalize(oracle.State{
			"configmaps": {"1": named("shop", "lock-"+suffix), "2": named("shop", "other")},
			"secrets":    {"1": named("shop", "network-"+uid)},
		}, oracle.Scope{Namespace: "shop", Names: []oracle.NamePattern{pattern}}, nil)
	}
	one := run("8761236f-2ed4-4729-b1fd-60d59aa29979", "x")
	require.Equal(t, one, run("0061236f-2ed4-4729-b1fd-60d59aa29979", "y"))
	require.Contains(t, one, `configmaps {"metadata":{"name":"lock-*","namespace":"NAMESPACE"}}`)
	require.Contains(t, one, `secrets {"metadata":{"name":"network-UUID","namespace":"NAMESPACE"}}`)
}

package test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/harness/clustertest"
)

// An agent can change nothing but the annotations of its own Node, and cannot admit itself.
func TestPolicy(t *testing.T) {
	w := newWorld(t, 2)
	const prefix = "reboot.controllers.example.com/"
	own, unbound, controller := w.client("reboot-agent", "node-0"), w.client("reboot-agent", ""), w.client("reboot-controller", "")
	annotation := func(name, value string) string { return `{"metadata":{"annotations":{"` + name + `":` + value + `}}}` }

	// The API server enforces a new policy after a moment.
	w.Eventually("the policy", func(ctx context.Context) string {
		_, err := own.CoreV1().Nodes().Patch(ctx, "node-1", types.MergePatchType, []byte(annotation(prefix+"reboot-needed", `"x"`)), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "an agent may change its own Node only") { // RBAC may forbid it at first
			return fmt.Sprintf("it is not enforced: %v", err)
		}
		return ""
	})
	w.annotate("node-0", prefix+"admitted", new("now"))
	w.annotate("node-0", prefix+"reboot-now", new("kernel"))
	w.annotate("node-0", "example.com/others", new("yes"))
	w.Kubectl("cordon", "node-0")
	const takesUp = `{"metadata":{"annotations":{"` + prefix + `reboot-now":null,"` + prefix + `reboot-in-progress":"id"}}}`
	for name, c := range map[string]struct{ node, patch, forbidden string }{
		"asks for a reboot":          {"node-0", annotation(prefix+"reboot-needed", `"x"`), ""},
		"takes up a reboot":          {"node-0", takesUp, ""},
		"uncordons":                  {"node-0", `{"spec":{"unschedulable":false}}`, ""},
		"another Node":               {"node-1", annotation(prefix+"reboot-needed", `"x"`), `an agent may change its own Node only, which is "node-0"`},
		"admits itself":              {"node-0", annotation(prefix+"admitted", `"x"`), "an agent may not admit itself"},
		"changes whose it is":        {"node-0", annotation(prefix+"admitted-by", `"x"`), "an agent may not admit itself"},
		"says that it has rebooted":  {"node-0", annotation(prefix+"rebooted", `"x"`), "an agent may not record a reboot other than the one that it completes"},
		"approves itself":            {"node-0", annotation(prefix+"reboot-now", `"y"`), "an agent may not admit itself"},
		"another annotation":         {"node-0", annotation("example.com/x", `"y"`), "an agent may change no annotations but " + prefix},
		"removes another annotation": {"node-0", annotation("example.com/others", "null"), "an agent may change no annotations but " + prefix},
		"a label":                    {"node-0", `{"metadata":{"labels":{"zone":"x"}}}`, "an agent may change nothing but annotations"},
		"a finalizer":                {"node-0", `{"metadata":{"finalizers":["example.com/x"]}}`, "an agent may change nothing but annotations"},
		"a taint":                    {"node-0", `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`, "an agent may change nothing but annotations"},
		"a provider":                 {"node-0", `{"spec":{"providerID":"x://y"}}`, "an agent may change nothing but annotations"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := own.CoreV1().Nodes().Patch(t.Context(), c.node, types.MergePatchType, []byte(c.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if c.forbidden == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, c.forbidden)
		})
	}
	for _, missing := range []string{"admitted", "reboot-now"} {
		t.Run("takes up a reboot without "+missing, func(t *testing.T) {
			w.annotate("node-0", prefix+missing, nil)
			defer w.annotate("node-0", prefix+missing, new("restored"))
			_, err := own.CoreV1().Nodes().Patch(t.Context(), "node-0", types.MergePatchType, []byte(takesUp), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			require.ErrorContains(t, err, "an agent may not begin a reboot that the controller has not approved")
		})
	}
	t.Run("changes a reboot in progress", func(t *testing.T) {
		w.annotate("node-0", prefix+"reboot-now", nil)
		w.annotate("node-0", prefix+"reboot-in-progress", new("id"))
		for value, forbidden := range map[string]string{`"another"`: "an agent may not begin a reboot", "null": ""} {
			_, err := own.CoreV1().Nodes().Patch(t.Context(), "node-0", types.MergePatchType, []byte(annotation(prefix+"reboot-in-progress", value)), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if forbidden == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, forbidden)
			}
		}
	})
	t.Run("cordons", func(t *testing.T) {
		w.Kubectl("uncordon", "node-0")
		_, err := own.CoreV1().Nodes().Patch(t.Context(), "node-0", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		require.ErrorContains(t, err, "an agent may not cordon its Node")
	})
	t.Run("a token without a Node", func(t *testing.T) {
		_, err := unbound.CoreV1().Nodes().Patch(t.Context(), "node-0", types.MergePatchType, []byte(annotation(prefix+"reboot-needed", `"x"`)), metav1.PatchOptions{})
		require.ErrorContains(t, err, `an agent may change its own Node only, which is ""`)
	})
	t.Run("the controller", func(t *testing.T) {
		_, err := controller.CoreV1().Nodes().Patch(t.Context(), "node-0", types.MergePatchType, []byte(annotation(prefix+"admitted", `"x"`)), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
	})
}

func TestRights(t *testing.T) {
	w := newWorld(t, 1)
	w.RequireRights("reboot-controller", clustertest.Rights{
		May: []string{
			"get nodes", "list nodes", "watch nodes", "patch nodes", "list pods --all-namespaces", "watch pods --all-namespaces", "create pods --subresource=eviction --all-namespaces",
			"get daemonsets.apps --all-namespaces", "create events.events.k8s.io --all-namespaces",
			"create leases.coordination.k8s.io", "update leases.coordination.k8s.io/reboot-controller", "update configmaps/reboot-ledger",
		},
		MayNot: []string{
			"update nodes", "delete nodes", "patch nodes --subresource=status", "delete pods --all-namespaces", "get secrets", "update configmaps/other",
			"get configmaps/reboot-ledger --namespace=kube-system", "update leases.coordination.k8s.io/other",
		},
	})
	w.RequireRights("reboot-agent", clustertest.Rights{
		May:    []string{"get nodes", "list nodes", "watch nodes", "patch nodes", "create events.events.k8s.io --all-namespaces"},
		MayNot: []string{"update nodes", "patch nodes --subresource=status", "list pods", "get secrets", "get configmaps", "create pods --subresource=eviction"},
	})
}

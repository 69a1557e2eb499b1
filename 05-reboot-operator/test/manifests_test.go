package test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/reboot/protocol"
)

// A21: in a namespace whose Pod Security level does not allow it, the DaemonSet has no Pods. The controller, with the flags that
// it is shipped with, does not cordon Nodes for nothing. The namespace as it is shipped allows the Pods.
func TestPodSecurity(t *testing.T) {
	w := newWorld(t, 2)
	w.Kubectl("label", "namespace", w.Namespace, "pod-security.kubernetes.io/enforce=baseline")
	w.Kubectl("apply", "--filename", "../manifests/agent.yaml")
	agents := func(want int32) {
		w.Eventually("the DaemonSet", func(ctx context.Context) string {
			set, err := w.Client.AppsV1().DaemonSets(w.Namespace).Get(ctx, "reboot-agent", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if set.Status.ObservedGeneration != set.Generation || set.Status.DesiredNumberScheduled != 2 || set.Status.NumberReady != want {
				return fmt.Sprintf("%d of %d Pods are ready", set.Status.NumberReady, set.Status.DesiredNumberScheduled)
			}
			return ""
		})
	}
	w.Eventually("a refusal", func(ctx context.Context) string {
		events, err := w.Client.CoreV1().Events(w.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate,involvedObject.name=reboot-agent"})
		if err != nil {
			return err.Error()
		}
		if len(events.Items) == 0 {
			return "the DaemonSet's Pods have not been refused"
		}
		return ""
	})
	agents(0)
	w.startController("--agent-pods=app=reboot-agent")
	w.request("node-0")
	require.Contains(t, w.told("node-0", "RebootRefused"), "no agent is running on it")
	require.False(t, w.node("node-0").Spec.Unschedulable)

	w.Kubectl("apply", "--filename", "../manifests/namespace.yaml")
	w.Kubectl("rollout", "restart", "daemonset/reboot-agent") // the DaemonSet controller would try again only after some minutes
	agents(2)
	w.becomes("node-0", protocol.Approved)
}

// A second controller in the namespace of the first one, with the manifests of a pool, acts on the Nodes of its pool only.
func TestASecondPool(t *testing.T) {
	w := newWorld(t, 2)
	w.reboots("", names(2)...)
	w.Kubectl("apply", "--kustomize", "../manifests/pools/batch")
	w.Kubectl("delete", "deployment/reboot-controller-batch") // it runs as a process
	w.Kubectl("label", "node", "node-1", "pool=batch")
	w.startAgents()
	w.startController("--node-selector=pool!=batch")
	w.startController("--node-selector=pool=batch", "--ledger=reboot-ledger-batch")
	w.request(names(2)...)
	w.rebooted(1, names(2)...)
	for node, ledger := range map[string]string{"node-0": "reboot-operator/reboot-ledger", "node-1": "reboot-operator/reboot-ledger-batch"} {
		w.mu.Lock()
		for _, version := range w.versions {
			if by, ok := version.Annotations[protocol.AdmittedByAnnotation]; ok && version.Name == node {
				require.Equal(t, ledger, by)
			}
		}
		w.mu.Unlock()
	}
}

// A drain that waits for a budget that counts Pods without a controller says why, as does one under two budgets.
func TestWhyADrainWaits(t *testing.T) {
	w := newWorld(t, 1)
	w.Kubectl("run", "bare", "--image=nginx:1.29", "--namespace=default")
	w.Kubectl("create", "poddisruptionbudget", "bare", "--selector=run=bare", "--max-unavailable=1", "--namespace=default")
	w.Kubectl("wait", "--for=condition=Ready", "pod/bare", "--namespace=default", "--timeout=2m")
	w.startController("--delete-unmanaged-pods")
	w.request("node-0")
	require.Contains(t, w.told("node-0", "DrainWaiting"), "Pod default/bare cannot be evicted: The disruption budget bare does not allow evicting pods currently")
	w.Eventually("why", func(context.Context) string {
		got := w.why("node-0")
		const want = "PodDisruptionBudget bare allows no disruption: no controller owns the Pod, so there is no number of Pods to take maxUnavailable or a percentage of; use a number as minAvailable"
		return missing(got, want)
	})
	w.Kubectl("create", "poddisruptionbudget", "second", "--selector=run=bare", "--min-available=0", "--namespace=default")
	w.Eventually("why", func(context.Context) string {
		return missing(w.why("node-0"), "PodDisruptionBudgets bare and second select it, and the API server evicts no Pod that more than one selects")
	})
	w.Eventually("an Event", func(ctx context.Context) string {
		return missing(w.allTold(ctx, "node-0", "DrainWaiting"), "Pod default/bare cannot be evicted: more than one PodDisruptionBudget selects it; change one of their selectors")
	})
}

package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/controllers/harness/machine"
)

// Many Nodes are listed less often than few, and in any case until they are Ready.
func TestWaitForNodes(t *testing.T) {
	const patience = 20 * time.Second
	for count, lists := range map[int]int{20: 2000, 1000: 100} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			tracker := client.Tracker()
			nodes := make([]*corev1.Node, count)
			for i := range nodes {
				nodes[i] = machine.Node(machine.Name(i), "v1.37.1")
				require.NoError(t, tracker.Add(nodes[i]))
			}
			for range 2 { // a cluster is started again
				client.ClearActions()
				begin := time.Now()
				time.AfterFunc(patience, func() {
					for _, node := range nodes {
						node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
						require.NoError(t, tracker.Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""))
					}
				})
				ready, err := waitForNodes(t.Context(), client)
				require.NoError(t, err)
				require.Equal(t, count, ready)
				require.GreaterOrEqual(t, time.Since(begin), patience)
				require.LessOrEqual(t, len(client.Actions()), lists+2, "lists of %d Nodes", count)
				require.Greater(t, len(client.Actions()), lists/2, "lists of %d Nodes", count)
				for _, node := range nodes {
					node.Status.Conditions = nil
					require.NoError(t, tracker.Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""))
				}
			}
		})
	}
}

func TestWaitForNodesInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("interrupted"))
		defer cancel()
		_, err := waitForNodes(ctx, fake.NewClientset(machine.Node("node-0", "v1.37.1")))
		require.EqualError(t, err, "interrupted (last error: node node-0 is not ready)")
	})
}

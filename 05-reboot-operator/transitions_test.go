package reboot

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/controllers/reboot/agent"
	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/protocol"
)

// signature returns what tells the phases apart, and who cordoned the Node.
func signature(node *corev1.Node) string {
	var present []string
	for _, annotation := range []string{protocol.NeededAnnotation, protocol.NowAnnotation, protocol.InProgressAnnotation, protocol.AdmittedAnnotation, protocol.CordonedAnnotation} {
		if _, ok := node.Annotations[annotation]; ok {
			present = append(present, strings.TrimPrefix(annotation, protocol.Prefix))
		}
	}
	return strings.Join(present, ",")
}

// bootID is a BootIDSource.
type bootID string

func (id bootID) Read(context.Context) (string, error) { return string(id), nil }

// action is something that may change a Node's phase.
type action struct {
	by, what string
	act      func(t *testing.T, node *corev1.Node) *corev1.Node
}

// actions are all that anybody does to Nodes. The controller's and the agent's are their own code.
func actions(t *testing.T) []action {
	edit := func(what string, change protocol.Change) action {
		return action{"administrator", what, func(_ *testing.T, node *corev1.Node) *corev1.Node {
			return nodetest.Apply(node, change.Annotations, change.Unschedulable)
		}}
	}
	cordon := func(what string, unschedulable bool) action {
		return edit(what, protocol.Change{Unschedulable: &unschedulable})
	}
	// overdue makes a Node as it is when each timeout is over.
	overdue := func(node *corev1.Node) {
		for _, annotation := range []string{protocol.AdmittedAnnotation, protocol.SinceAnnotation} {
			if _, ok := node.Annotations[annotation]; ok {
				nodetest.Annotation(annotation, protocol.FormatTime(time.Now().Add(-24*time.Hour)))(node)
			}
		}
	}
	// A Pod that no controller owns is not evicted.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "migration"}, Spec: corev1.PodSpec{NodeName: "n"}}

	controller := func(what string, pods []*corev1.Pod, prepare func(*corev1.Node)) action {
		return action{"controller", what, func(t *testing.T, node *corev1.Node) *corev1.Node {
			node = node.DeepCopy()
			prepare(node)
			client := fake.NewClientset(node)
			for _, pod := range pods {
				require.NoError(t, client.Tracker().Add(pod))
			}
			c, err := New(t.Context(), client, testOptions())
			require.NoError(t, err)
			defer c.broadcaster.Shutdown()
			defer c.queue.ShutDown()
			require.NoError(t, c.nodes.Informer().GetIndexer().Add(node))
			_, err = c.admit(t.Context())
			require.NoError(t, err)
			if protocol.PhaseOf(node) != protocol.Needed {
				_, err = c.reconcile(t.Context(), node.Name)
				require.NoError(t, err)
			}
			return current(t, client)
		}}
	}
	agentThat := func(what string, id func(before string) string, sentinel *agent.Sentinel) action {
		return action{"agent", what, func(t *testing.T, node *corev1.Node) *corev1.Node {
			client := fake.NewClientset(node)
			a, err := agent.New(t.Context(), client, agent.Options{
				NodeName: node.Name, BootID: bootID(id(node.Annotations[protocol.InProgressAnnotation])), Rebooter: agent.DryRun{},
				Sentinel: sentinel, RebootRetry: time.Minute, Backoff: time.Second, MaxBackoff: time.Second,
			})
			require.NoError(t, err)
			defer a.Broadcaster.Shutdown()
			defer a.Queue.ShutDown()
			require.NoError(t, a.Nodes.Informer().GetIndexer().Add(node))
			_, err = a.Reconcile(t.Context())
			require.NoError(t, err)
			return current(t, client)
		}}
	}
	file := filepath.Join(t.TempDir(), "reboot-required")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	return []action{
		edit("requests a reboot", protocol.NewChange().Set(protocol.NeededAnnotation, "")),
		{"administrator", "writes reboot-now on a Node that is not admitted", func(_ *testing.T, node *corev1.Node) *corev1.Node {
			if protocol.PhaseOf(node).HoldsSlot() {
				return node.DeepCopy()
			}
			return nodetest.Apply(node, protocol.NewChange().Set(protocol.NowAnnotation, "").Annotations, nil)
		}},
		edit("removes reboot-needed", protocol.NewChange().Remove(protocol.NeededAnnotation)),
		edit("removes reboot-now", protocol.NewChange().Remove(protocol.NowAnnotation)),
		edit("removes reboot-in-progress", protocol.NewChange().Remove(protocol.InProgressAnnotation)),
		cordon("cordons", true), cordon("uncordons", false),
		controller("works", nil, func(*corev1.Node) {}),
		controller("waits for a Pod", []*corev1.Pod{pod}, func(*corev1.Node) {}),
		controller("finds everything overdue", []*corev1.Pod{pod}, overdue),
		agentThat("works before the reboot", func(before string) string { return before }, nil),
		agentThat("works after the reboot", func(before string) string { return before + "'" }, nil),
		agentThat("works with a sentinel", func(before string) string { return before }, &agent.Sentinel{File: file, Interval: time.Minute}),
	}
}

func current(t *testing.T, client *fake.Clientset) *corev1.Node {
	node, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	require.NoError(t, err)
	return node
}

// From a Node without annotations, whatever the three do in whatever order leads from phase to phase as in the table, and
// nowhere else; and everything in the table happens.
func TestTransitions(t *testing.T) {
	all := actions(t)
	occurred, seen := map[protocol.Transition]bool{}, map[string]bool{}
	found := []*corev1.Node{nodetest.New("n")}
	for len(found) > 0 {
		node := found[0]
		found = found[1:]
		key := signature(node)
		if node.Spec.Unschedulable {
			key += ", cordoned"
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, action := range all {
			next := action.act(t, node)
			delete(next.Annotations, protocol.RetryAfterAnnotation) // time passes
			delete(next.Annotations, protocol.SentinelIgnoredAnnotation)
			found = append(found, next)
			if from, to := protocol.PhaseOf(node), protocol.PhaseOf(next); from != to {
				row := transition(from, to, action.by)
				require.NotNil(t, row, "the %s %s: %s → %s (%s → %s), which is not in the table", action.by, action.what, from, to, key, signature(next))
				occurred[*row] = true
			}
		}
	}
	for _, row := range protocol.Transitions {
		require.True(t, occurred[row], "%s → %s by the %s never happens", row.From, row.To, row.By)
	}
	require.Greater(t, len(seen), len(protocol.Phases), "%v", seen)
}

// transition returns the row of the table, nil if there is none.
func transition(from, to protocol.Phase, by string) *protocol.Transition {
	for _, row := range protocol.Transitions {
		if row.From == from && row.To == to && (row.By == by || by == "agent" && strings.Contains(row.When, "so does the agent")) {
			return &row
		}
	}
	return nil
}

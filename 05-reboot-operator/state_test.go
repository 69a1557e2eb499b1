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
)

// phaseAnnotations are those that tell phases apart, and who cordoned the Node.
var phaseAnnotations = []string{NeededAnnotation, NowAnnotation, InProgressAnnotation, AdmittedAnnotation, CordonedAnnotation}

// abbreviate returns a letter for each of those annotations that a Node has, in their order: n, N, p, a and c.
func abbreviate(node *corev1.Node) string {
	text := []byte("-----")
	for i, annotation := range phaseAnnotations {
		if _, ok := node.Annotations[annotation]; ok {
			text[i] = "nNpac"[i]
		}
	}
	return string(text)
}

func TestPhaseOfEachCombinationOfAnnotations(t *testing.T) {
	want := map[string]Phase{
		"-----": Idle, "-N---": Idle, "----c": Idle, "-N--c": Idle,
		"n----": Needed, "nN---": Needed, "n---c": Needed, "nN--c": Needed,
		"n--a-": Draining, "n--ac": Draining,
		"-N-a-": Approved, "-N-ac": Approved, "nN-a-": Approved, "nN-ac": Approved,
		"---a-": Cancelled, "---ac": Cancelled,
		"--p--": InProgress, "n-p--": InProgress, "-Np--": InProgress, "nNp--": InProgress,
		"--p-c": InProgress, "n-p-c": InProgress, "-Np-c": InProgress, "nNp-c": InProgress,
		"--pa-": InProgress, "n-pa-": InProgress, "-Npa-": InProgress, "nNpa-": InProgress,
		"--pac": InProgress, "n-pac": InProgress, "-Npac": InProgress, "nNpac": InProgress,
	}
	combinations := 1 << len(phaseAnnotations)
	require.Len(t, want, combinations)
	for bits := range combinations {
		for _, value := range []string{"", "a value"} {
			node := &corev1.Node{}
			for i, annotation := range phaseAnnotations {
				if bits&(1<<i) != 0 {
					withAnnotation(annotation, value)(node)
				}
			}
			require.Equal(t, want[abbreviate(node)], PhaseOf(node), "%s with the value %q", abbreviate(node), value)
		}
	}
}

func TestPhasesThatHoldASlot(t *testing.T) {
	var hold []Phase
	for _, phase := range Phases {
		if phase.holdsSlot() {
			hold = append(hold, phase)
		}
	}
	require.Equal(t, []Phase{Draining, Approved, InProgress, Cancelled}, hold)
}

func TestIsReady(t *testing.T) {
	require.True(t, isReady(newNode("n", ready(corev1.ConditionTrue))))
	require.False(t, isReady(newNode("n", notReady)))
	require.False(t, isReady(newNode("n", unknownReady)))
	require.False(t, isReady(newNode("n", without(corev1.NodeReady))))
	require.False(t, isReady(&corev1.Node{}))
}

func TestTimeOf(t *testing.T) {
	for value, want := range map[string]time.Time{
		formatTime(monday):                  monday,
		"2026-01-05T13:00:00+01:00":         monday,
		"":                                  {},
		"yesterday":                         {},
		"2026-01-05":                        {},
		"1767614400":                        {},
		formatTime(monday) + " (or later?)": {},
	} {
		require.WithinDuration(t, want, timeOf(newNode("n", withAnnotation(SinceAnnotation, value)), SinceAnnotation), 0, value)
	}
	require.Zero(t, timeOf(&corev1.Node{}, SinceAnnotation), "without annotations")
	require.Equal(t, "2026-01-05T12:00:00Z", formatTime(monday.In(time.FixedZone("", 3600)).Add(time.Millisecond)))
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
	edit := func(what string, change change) action {
		return action{"administrator", what, func(_ *testing.T, node *corev1.Node) *corev1.Node { return apply(node, change) }}
	}
	cordon := func(what string, unschedulable bool) action {
		return edit(what, change{unschedulable: &unschedulable})
	}
	// overdue makes a Node as it is when each timeout is over.
	overdue := func(node *corev1.Node) {
		for _, annotation := range []string{AdmittedAnnotation, SinceAnnotation} {
			if _, ok := node.Annotations[annotation]; ok {
				withAnnotation(annotation, formatTime(time.Now().Add(-24*time.Hour)))(node)
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
			if PhaseOf(node) != Needed {
				_, err = c.reconcile(t.Context(), node.Name)
				require.NoError(t, err)
			}
			return current(t, client)
		}}
	}
	agent := func(what string, id func(before string) string, sentinel *Sentinel) action {
		return action{"agent", what, func(t *testing.T, node *corev1.Node) *corev1.Node {
			client := fake.NewClientset(node)
			a, err := NewAgent(t.Context(), client, AgentOptions{
				NodeName: node.Name, BootID: bootID(id(node.Annotations[InProgressAnnotation])), Rebooter: DryRun{},
				Sentinel: sentinel, RebootRetry: time.Minute, Backoff: time.Second, MaxBackoff: time.Second,
			})
			require.NoError(t, err)
			defer a.broadcaster.Shutdown()
			defer a.queue.ShutDown()
			require.NoError(t, a.nodes.Informer().GetIndexer().Add(node))
			_, err = a.reconcile(t.Context())
			require.NoError(t, err)
			return current(t, client)
		}}
	}
	file := filepath.Join(t.TempDir(), "reboot-required")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	return []action{
		edit("requests a reboot", newChange().set(NeededAnnotation, "")),
		{"administrator", "writes reboot-now on a Node that is not admitted", func(_ *testing.T, node *corev1.Node) *corev1.Node {
			if PhaseOf(node).holdsSlot() {
				return node.DeepCopy()
			}
			return apply(node, newChange().set(NowAnnotation, ""))
		}},
		edit("removes reboot-needed", newChange().remove(NeededAnnotation)),
		edit("removes reboot-now", newChange().remove(NowAnnotation)),
		edit("removes reboot-in-progress", newChange().remove(InProgressAnnotation)),
		cordon("cordons", true), cordon("uncordons", false),
		controller("works", nil, func(*corev1.Node) {}),
		controller("waits for a Pod", []*corev1.Pod{pod}, func(*corev1.Node) {}),
		controller("finds everything overdue", []*corev1.Pod{pod}, overdue),
		agent("works before the reboot", func(before string) string { return before }, nil),
		agent("works after the reboot", func(before string) string { return before + "'" }, nil),
		agent("works with a sentinel", func(before string) string { return before }, &Sentinel{File: file, Interval: time.Minute}),
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
	occurred, seen := map[Transition]bool{}, map[string]bool{}
	found := []*corev1.Node{newNode("n")}
	for len(found) > 0 {
		node := found[0]
		found = found[1:]
		key := abbreviate(node)
		if node.Spec.Unschedulable {
			key += ", cordoned"
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, action := range all {
			next := action.act(t, node)
			delete(next.Annotations, RetryAfterAnnotation) // time passes
			delete(next.Annotations, SentinelIgnoredAnnotation)
			found = append(found, next)
			if from, to := PhaseOf(node), PhaseOf(next); from != to {
				row := transition(from, to, action.by)
				require.NotNil(t, row, "the %s %s: %s → %s (%s → %s), which is not in the table", action.by, action.what, from, to, key, abbreviate(next))
				occurred[*row] = true
			}
		}
	}
	for _, row := range Transitions {
		require.True(t, occurred[row], "%s → %s by the %s never happens", row.From, row.To, row.By)
	}
	require.Greater(t, len(seen), len(Phases), "%v", seen)
}

// transition returns the row of the table, nil if there is none.
func transition(from, to Phase, by string) *Transition {
	for _, row := range Transitions {
		if row.From == from && row.To == to && (row.By == by || by == "agent" && strings.Contains(row.When, "so does the agent")) {
			return &row
		}
	}
	return nil
}

func TestTheTableOfTransitions(t *testing.T) {
	seen := map[Transition]bool{}
	for _, row := range Transitions {
		require.Contains(t, Phases, row.From)
		require.Contains(t, Phases, row.To)
		require.Contains(t, []string{"administrator", "controller", "agent"}, row.By)
		require.NotEmpty(t, row.When)
		key := Transition{From: row.From, To: row.To, By: row.By}
		require.False(t, seen[key], "%v is there twice", key)
		seen[key] = true
	}
}

func TestEnd(t *testing.T) {
	all := map[string]string{
		NeededAnnotation: "again", NowAnnotation: "why", InProgressAnnotation: "boot-1", AdmittedAnnotation: "then", SinceAnnotation: "then",
		FailuresAnnotation: "2", RetryAfterAnnotation: "later", LastAttemptAnnotation: "long ago", "example.com/others": "yes",
	}
	want := map[string]string{
		NeededAnnotation: "again", FailuresAnnotation: "2", RetryAfterAnnotation: "later", LastAttemptAnnotation: formatTime(monday), "example.com/others": "yes",
	}
	for name, ours := range map[string]bool{"cordoned by us": true, "cordoned by somebody else": false} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n")
			node.Spec.Unschedulable = true
			for annotation, value := range all {
				withAnnotation(annotation, value)(node)
			}
			if ours {
				withAnnotation(CordonedAnnotation, "true")(node)
			}
			ended := apply(node, end(node, monday))
			require.Equal(t, want, ended.Annotations)
			require.Equal(t, !ours, ended.Spec.Unschedulable, "what somebody else cordoned stays cordoned")
		})
	}
	require.Equal(t, map[string]string{LastAttemptAnnotation: formatTime(monday)}, apply(&corev1.Node{}, end(&corev1.Node{}, monday)).Annotations, "without annotations")
}

package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"example.com/controllers/reboot/internal/nodetest"
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
					nodetest.Annotation(annotation, value)(node)
				}
			}
			require.Equal(t, want[abbreviate(node)], PhaseOf(node), "%s with the value %q", abbreviate(node), value)
		}
	}
}

func TestPhasesThatHoldASlot(t *testing.T) {
	var hold []Phase
	for _, phase := range Phases {
		if phase.HoldsSlot() {
			hold = append(hold, phase)
		}
	}
	require.Equal(t, []Phase{Draining, Approved, InProgress, Cancelled}, hold)
}

func TestIsReady(t *testing.T) {
	require.True(t, IsReady(nodetest.New("n", nodetest.Ready(corev1.ConditionTrue))))
	require.False(t, IsReady(nodetest.New("n", nodetest.NotReady)))
	require.False(t, IsReady(nodetest.New("n", nodetest.UnknownReady)))
	require.False(t, IsReady(nodetest.New("n", nodetest.Without(corev1.NodeReady))))
	require.False(t, IsReady(&corev1.Node{}))
}

func TestTimeOf(t *testing.T) {
	for value, want := range map[string]time.Time{
		FormatTime(nodetest.Monday): nodetest.Monday,
		"2026-01-05T13:00:00+01:00": nodetest.Monday,
		"":                          {},
		"yesterday":                 {},
		"2026-01-05":                {},
		"1767614400":                {},
		FormatTime(nodetest.Monday) + " (or later?)": {},
	} {
		require.WithinDuration(t, want, TimeOf(nodetest.New("n", nodetest.Annotation(SinceAnnotation, value)), SinceAnnotation), 0, value)
	}
	require.Zero(t, TimeOf(&corev1.Node{}, SinceAnnotation), "without annotations")
	require.Equal(t, "2026-01-05T12:00:00Z", FormatTime(nodetest.Monday.In(time.FixedZone("", 3600)).Add(time.Millisecond)))
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
		NeededAnnotation: "again", FailuresAnnotation: "2", RetryAfterAnnotation: "later", LastAttemptAnnotation: FormatTime(nodetest.Monday), "example.com/others": "yes",
	}
	for name, ours := range map[string]bool{"cordoned by us": true, "cordoned by somebody else": false} {
		t.Run(name, func(t *testing.T) {
			node := nodetest.New("n")
			node.Spec.Unschedulable = true
			for annotation, value := range all {
				nodetest.Annotation(annotation, value)(node)
			}
			if ours {
				nodetest.Annotation(CordonedAnnotation, "true")(node)
			}
			change := End(node, nodetest.Monday)
			ended := nodetest.Apply(node, change.Annotations, change.Unschedulable)
			require.Equal(t, want, ended.Annotations)
			require.Equal(t, !ours, ended.Spec.Unschedulable, "what somebody else cordoned stays cordoned")
		})
	}
	change := End(&corev1.Node{}, nodetest.Monday)
	ended := nodetest.Apply(&corev1.Node{}, change.Annotations, change.Unschedulable)
	require.Equal(t, map[string]string{LastAttemptAnnotation: FormatTime(nodetest.Monday)}, ended.Annotations, "without annotations")
}

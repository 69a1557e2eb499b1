package status_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/policy"
	"example.com/controllers/reboot/protocol"
	"example.com/controllers/reboot/status"
)

var statusTime = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func cordoned(node *corev1.Node) *corev1.Node {
	node.Spec.Unschedulable = true
	return node
}

func notReady(node *corev1.Node) *corev1.Node {
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	return node
}

func manyNotReady(count int) (nodes []*corev1.Node) {
	for i := range count {
		nodes = append(nodes, notReady(nodetest.WithAnnotations(strconv.Itoa(i))))
	}
	return nodes
}

func labelled(node *corev1.Node, key, value string) *corev1.Node {
	node.Labels = map[string]string{key: value}
	return node
}

func beingDeleted(node *corev1.Node) *corev1.Node {
	node.DeletionTimestamp = &metav1.Time{Time: statusTime}
	return node
}

// annotatedBy adds what the API server notes about the owner of an annotation.
func annotatedBy(node *corev1.Node, at time.Time, annotation string) *corev1.Node {
	entry := metav1.ManagedFieldsEntry{Manager: "kubectl-annotate", Time: &metav1.Time{Time: at}, FieldsV1: &metav1.FieldsV1{}}
	entry.FieldsV1.SetRawBytes([]byte(`{"f:metadata":{"f:annotations":{".":{},"f:` + annotation + `":{}}}}`))
	node.ManagedFields = append(node.ManagedFields, entry)
	return node
}

// unrecorded adds entries to the managedFields that lack the fields, or the time.
func unrecorded(node *corev1.Node) *corev1.Node {
	annotatedBy(node, statusTime, protocol.NeededAnnotation).ManagedFields[0].Time = nil
	node.ManagedFields = append(node.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl", Time: &metav1.Time{Time: statusTime}})
	return node
}

// before returns a time before statusTime in the form of an annotation.
func before(d time.Duration) string { return statusTime.Add(-d).Format(time.RFC3339) }

const (
	draining   = "reboot-needed="
	approved   = "reboot-now="
	inProgress = "reboot-in-progress=boot-0"
)

func admittedAt(d time.Duration) string { return "admitted=" + before(d) }
func sinceAt(d time.Duration) string    { return "since=" + before(d) }

func policyOf(change func(*policy.Policy)) *policy.Policy {
	policy := &policy.Policy{MaxUnavailable: intstr.FromInt32(1), MaxPerDomain: intstr.FromInt32(1), Selector: labels.Everything()}
	if change != nil {
		change(policy)
	}
	return policy
}

func TestStatusOrder(t *testing.T) {
	view := status.View{
		State: policy.State{Now: statusTime, Nodes: []*corev1.Node{
			nodetest.WithAnnotations("a"),
			nodetest.WithAnnotations("b", "reboot-needed=", "last-attempt="+before(time.Hour)),
			nodetest.WithAnnotations("c", "reboot-needed=", "last-attempt="+before(2*time.Hour)),
			nodetest.WithAnnotations("d", draining, admittedAt(time.Minute)),
			cordoned(nodetest.WithAnnotations("e", approved, admittedAt(time.Minute))),
			notReady(nodetest.WithAnnotations("f", inProgress, admittedAt(time.Minute))),
			nodetest.WithAnnotations("g", admittedAt(time.Minute)),
			nodetest.WithAnnotations("h", "reboot-needed="),
		}},
		Policy: policyOf(nil),
	}
	var order []string
	for _, status := range view.Status() {
		order = append(order, status.Name+" "+string(status.Phase))
	}
	require.Equal(t, []string{
		"f InProgress", "e Approved", "d Draining", "g Cancelled",
		"h Needed", "c Needed", "b Needed", // the one that has never been rebooted first
		"a Idle",
	}, order)
}

// The time of the next attempt concerns only a Node that still needs the reboot.
func TestStatusRetryAfter(t *testing.T) {
	retry := "retry-after=" + before(-time.Minute)
	view := status.View{State: policy.State{Now: statusTime, Nodes: []*corev1.Node{nodetest.WithAnnotations("a", draining, retry), nodetest.WithAnnotations("b", retry)}}}
	statuses := view.Status()
	require.Equal(t, "a", statuses[0].Name)
	require.NotNil(t, statuses[0].RetryAfter)
	require.True(t, statuses[0].RetryAfter.Time.Equal(statusTime.Add(time.Minute)))
	require.Nil(t, statuses[1].RetryAfter)
}

func TestStatusWaitingFor(t *testing.T) {
	night, err := policy.ParseWindow(nil, "22:00", "04:00", "UTC")
	require.NoError(t, err)
	for _, test := range []struct {
		name   string
		node   *corev1.Node
		others []*corev1.Node
		policy *policy.Policy
		change func(*status.View)
		want   string
	}{
		{name: "idle", node: nodetest.WithAnnotations("n"), policy: policyOf(nil), want: ""},
		{name: "a reboot-now without a request", node: nodetest.WithAnnotations("n", approved), policy: policyOf(nil), want: ""},
		{name: "next", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil), want: "the controller to admit it"},
		{name: "unknown policy", node: nodetest.WithAnnotations("n", draining), want: "the controller to admit it"},
		{name: "unknown policy, paused", node: nodetest.WithAnnotations("n", draining), change: func(v *status.View) { v.Pauses = []protocol.Pause{{}} }, want: "kubectl reboot resume"},
		{name: "in the ledger", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil), change: func(v *status.View) { v.Slots = map[string]bool{"n": true} }, want: "the controller to cordon it"},
		{name: "paused", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil), change: func(v *status.View) { v.Pauses = []protocol.Pause{{}} }, want: "kubectl reboot resume"},
		{name: "not selected", node: nodetest.WithAnnotations("n", draining), policy: policyOf(func(p *policy.Policy) { p.Selector = labels.SelectorFromSet(labels.Set{"pool": "web"}) }), want: "nothing: --node-selector pool=web does not select it"},
		{name: "window", node: nodetest.WithAnnotations("n", draining), policy: policyOf(func(p *policy.Policy) { p.Window = night }), want: "the window: the next window begins at Fri 2026-11-20 22:00 UTC"},
		{name: "retry", node: nodetest.WithAnnotations("n", draining, "failures=1", "retry-after="+before(-time.Minute)), policy: policyOf(nil), want: "its retry at 2026-11-20T12:01:00Z"},
		{name: "blocked", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil), change: func(v *status.View) { v.Blockers = map[string]string{"n": "db/backup"} }, want: "Pod db/backup to end"},
		{name: "budget", node: nodetest.WithAnnotations("n", draining), others: []*corev1.Node{notReady(nodetest.WithAnnotations("m"))}, policy: policyOf(nil), want: "a free slot"},
		{name: "domain", node: labelled(nodetest.WithAnnotations("n", draining), "zone", "a"), others: []*corev1.Node{labelled(notReady(nodetest.WithAnnotations("m")), "zone", "a")},
			policy: policyOf(func(p *policy.Policy) { p.MaxUnavailable, p.TopologyKey = intstr.FromInt32(5), "zone" }), want: "a free slot of the Nodes with zone=a"},
		{name: "drain", node: cordoned(nodetest.WithAnnotations("n", draining, admittedAt(0))), change: func(v *status.View) { v.Remaining = map[string]string{"n": "Pod a/b"} }, want: "Pod a/b"},
		{name: "drain, Pods unknown", node: cordoned(nodetest.WithAnnotations("n", draining, admittedAt(0))), want: "its Pods to be evicted"},
		{name: "drain, no Pods", node: cordoned(nodetest.WithAnnotations("n", draining, admittedAt(0))), change: func(v *status.View) { v.Remaining = map[string]string{"n": ""} }, want: "the controller to approve the reboot"},
		{name: "uncordoned", node: nodetest.WithAnnotations("n", draining, admittedAt(0)), want: "the controller to cordon it again"},
		{name: "uncordoned after the drain", node: nodetest.WithAnnotations("n", approved, admittedAt(0)), want: "the controller to cordon it again"},
		{name: "approved", node: cordoned(nodetest.WithAnnotations("n", approved, admittedAt(0))), want: "the agent"},
		{name: "down", node: notReady(nodetest.WithAnnotations("n", inProgress, admittedAt(0))), want: "the machine to come back"},
		{name: "up", node: cordoned(nodetest.WithAnnotations("n", inProgress, admittedAt(0))), want: "the agent to see a new boot ID"},
		{name: "up, uncordoned", node: nodetest.WithAnnotations("n", inProgress, admittedAt(0)), want: "somebody to cordon it"},
		{name: "cancelled", node: cordoned(nodetest.WithAnnotations("n", admittedAt(0))), want: "the controller to uncordon it"},
		{name: "nonsense in all annotations", node: nodetest.WithAnnotations("n", draining, "failures=x", "retry-after=x", "last-attempt=x", "since=x", "cordoned="), policy: policyOf(nil), want: "the controller to admit it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			view := status.View{State: policy.State{Now: statusTime, Nodes: append([]*corev1.Node{test.node}, test.others...)}, Policy: test.policy}
			if test.change != nil {
				test.change(&view)
			}
			for _, status := range view.Status() {
				if status.Name == "n" {
					require.Equal(t, test.want, status.WaitingFor)
				}
			}
		})
	}
}

func TestStatusSince(t *testing.T) {
	for _, test := range []struct {
		name string
		node *corev1.Node
		want time.Duration // before statusTime; -1 if not known
	}{
		{"idle", nodetest.WithAnnotations("n"), -1},
		{"rebooted", nodetest.WithAnnotations("n", "last-attempt="+before(time.Hour)), time.Hour},
		{"draining", nodetest.WithAnnotations("n", draining, admittedAt(time.Hour), sinceAt(time.Minute)), time.Minute},
		{"in progress", nodetest.WithAnnotations("n", inProgress, admittedAt(time.Hour), sinceAt(time.Minute)), time.Minute},
		{"cancelled, and nobody knows when", nodetest.WithAnnotations("n", admittedAt(time.Hour), sinceAt(time.Minute)), -1},
		{"requested, and nobody knows when", nodetest.WithAnnotations("n", draining), -1},
		{"requested", annotatedBy(nodetest.WithAnnotations("n", draining), statusTime.Add(-time.Minute), protocol.NeededAnnotation), time.Minute},
		{"requested after an earlier reboot", annotatedBy(nodetest.WithAnnotations("n", draining, "last-attempt="+before(time.Hour)), statusTime.Add(-time.Minute), protocol.NeededAnnotation), time.Minute},
		{"given up", annotatedBy(nodetest.WithAnnotations("n", draining, "failures=1", "last-attempt="+before(time.Minute)), statusTime.Add(-time.Hour), protocol.NeededAnnotation), time.Minute},
		{"requested during the last reboot", annotatedBy(nodetest.WithAnnotations("n", draining, "last-attempt="+before(time.Minute)), statusTime.Add(-time.Hour), protocol.NeededAnnotation), time.Hour},
		{"requested, and others have written without a record", annotatedBy(unrecorded(nodetest.WithAnnotations("n", draining)), statusTime.Add(-time.Minute), protocol.NeededAnnotation), time.Minute},
		{"another annotation was written", annotatedBy(nodetest.WithAnnotations("n", draining), statusTime.Add(-time.Minute), "example.com/other"), -1},
		{"no time", nodetest.WithAnnotations("n", draining, admittedAt(0), "since=yesterday"), -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			view := status.View{State: policy.State{Now: statusTime, Nodes: []*corev1.Node{test.node}}}
			since := view.Status()[0].Since
			if test.want < 0 {
				require.Nil(t, since)
				return
			}
			require.NotNil(t, since)
			require.Equal(t, test.want, statusTime.Sub(since.Time))
		})
	}
}

func TestShortBootID(t *testing.T) {
	for id, want := range map[string]string{
		"":                                     "",
		"boot-1":                               "boot-1",
		"1b4e28ba-2fa1-11d2-883f-0016d3cca427": "1b4e28ba",
		"1b4e28ba-2fa1-11d2-883f-0016d3cca427-4711": "1b4e28ba-4711", // of a container: only the end changes
		"a-long-id-that-is-not-a-uuid-but-as-long":  "a-long-id-that-is-not-a-uuid-but-as-long",
	} {
		require.Equal(t, want, status.ShortBootID(id))
	}
}

func TestExplain(t *testing.T) {
	timeouts := status.Timeouts{Drain: 30 * time.Minute, Agent: 5 * time.Minute, Reboot: 10 * time.Minute}
	for _, test := range []struct {
		name   string
		node   *corev1.Node
		others []*corev1.Node
		policy *policy.Policy
		change func(*status.View)
		want   []string
	}{
		{name: "idle", node: nodetest.WithAnnotations("n"), want: []string{`Nobody has asked for a reboot of Node n; "kubectl reboot request n" does.`}},
		{name: "idle, with a sentinel that is ignored", node: nodetest.WithAnnotations("n", "last-attempt="+before(time.Hour), "sentinel-ignored=/var/run/reboot-required exists"), want: []string{
			`Nobody has asked for a reboot of Node n; "kubectl reboot request n" does.`,
			"Its last reboot, or attempt at one, ended 60m ago.",
			"The sentinel of its machine is ignored until it stops asking for a reboot (/var/run/reboot-required exists).",
		}},
		{name: "idle, with a reboot-now from elsewhere", node: nodetest.WithAnnotations("n", approved), want: []string{
			`Nobody has asked for a reboot of Node n; "kubectl reboot request n" does.`,
			"Its annotation reboot.controllers.example.com/reboot-now has no effect, because the controller has not admitted the Node.",
		}},
		{name: "next", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil), want: []string{"Nothing keeps Node n from being rebooted now; it waits for the controller to admit it."}},
		{name: "unknown policy", node: nodetest.WithAnnotations("n", draining), want: []string{"Node n needs a reboot and waits for the controller to admit it."}},
		{name: "being deleted", node: beingDeleted(nodetest.WithAnnotations("n", draining)), policy: policyOf(nil), want: []string{"Node n needs a reboot, and is being deleted; such Nodes are not admitted."}},
		{name: "in the ledger", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil), change: func(v *status.View) { v.Slots = map[string]bool{"n": true} },
			want: []string{"Node n has a slot; the controller is about to cordon and drain it."}},
		{name: "paused", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil), change: func(v *status.View) { v.Pauses = []protocol.Pause{{}} },
			want: []string{`Node n needs a reboot, but reboots are paused; "kubectl reboot resume" resumes them.`}},
		{name: "resting", node: nodetest.WithAnnotations("n", draining), policy: policyOf(func(p *policy.Policy) { p.PauseAfterReboot = 10 * time.Minute }),
			others: []*corev1.Node{nodetest.WithAnnotations("a", "rebooted="+before(time.Minute))}, want: []string{
				"Node n needs a reboot, but is not admitted now: 1 of 2 Nodes are unavailable; --max-unavailable is 1.",
				"Unavailable: a (rebooted 60s ago; --pause-after-reboot is 10m).",
			}},
		{name: "not selected", node: nodetest.WithAnnotations("n", draining), policy: policyOf(func(p *policy.Policy) { p.Selector = labels.SelectorFromSet(labels.Set{"pool": "a"}) }), want: []string{
			"Node n needs a reboot, but is not admitted now: --node-selector pool=a does not select it.",
			"If another controller is for it, name that one's ledger: kubectl reboot why n --ledger LEDGER.",
		}},
		{name: "budget", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil),
			others: []*corev1.Node{nodetest.WithAnnotations("a", draining), cordoned(nodetest.WithAnnotations("b", draining, admittedAt(0))), notReady(nodetest.WithAnnotations("c")), nodetest.WithAnnotations("d")},
			want: []string{
				"Node n needs a reboot, but is not admitted now: 2 of 5 Nodes are unavailable; --max-unavailable is 1.",
				"Unavailable: b (Draining), c (not ready).",
				"It is number 2 of the 2 Nodes that wait.",
			}},
		{name: "no budget", node: nodetest.WithAnnotations("n", draining), policy: policyOf(func(p *policy.Policy) { p.MaxUnavailable = intstr.FromInt32(0) }), want: []string{
			"Node n needs a reboot, but is not admitted now: 0 of 1 Nodes are unavailable; --max-unavailable is 0.",
		}},
		{name: "as many unavailable as fit in a sentence", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil), others: manyNotReady(10), want: []string{
			"Node n needs a reboot, but is not admitted now: 10 of 11 Nodes are unavailable; --max-unavailable is 1.",
			"Unavailable: 0 (not ready), 1 (not ready), 2 (not ready), 3 (not ready), 4 (not ready), 5 (not ready), 6 (not ready), 7 (not ready), 8 (not ready), 9 (not ready).",
		}},
		{name: "more", node: nodetest.WithAnnotations("n", draining), policy: policyOf(nil), others: manyNotReady(12), want: []string{
			"Node n needs a reboot, but is not admitted now: 12 of 13 Nodes are unavailable; --max-unavailable is 1.",
			"Unavailable: 0 (not ready), 1 (not ready), 10 (not ready), 11 (not ready), 2 (not ready), 3 (not ready), 4 (not ready), 5 (not ready), 6 (not ready), 7 (not ready), and 2 more.",
		}},
		{name: "domain", node: labelled(nodetest.WithAnnotations("n", draining), "zone", "a"),
			others: []*corev1.Node{labelled(notReady(nodetest.WithAnnotations("c")), "zone", "a"), labelled(notReady(nodetest.WithAnnotations("d")), "zone", "b")},
			policy: policyOf(func(p *policy.Policy) { p.MaxUnavailable, p.TopologyKey = intstr.FromInt32(3), "zone" }),
			want: []string{
				"Node n needs a reboot, but is not admitted now: 1 of 2 Nodes with zone=a are unavailable; --max-unavailable-per-domain is 1.",
				"Unavailable: c (not ready).",
			}},
		{name: "retry", node: nodetest.WithAnnotations("n", draining, "failures=2", "retry-after="+before(-time.Minute)), policy: policyOf(nil), want: []string{
			"Node n needs a reboot, but is not admitted now: the last attempt failed; the next one is due at 2026-11-20T12:01:00Z.",
			"Its last 2 attempts ended without a reboot.",
		}},
		{name: "drain", node: cordoned(nodetest.WithAnnotations("n", draining, admittedAt(time.Minute))),
			change: func(v *status.View) {
				v.Remaining = map[string]string{"n": "Pod shop/web-0 (PodDisruptionBudget web allows no disruption)"}
			},
			want: []string{
				"Node n was admitted 60s ago and is being drained.",
				"The drain waits for Pod shop/web-0 (PodDisruptionBudget web allows no disruption).",
				"At 2026-11-20T12:29:00Z, after --drain-timeout 30m, the controller gives up, uncordons it and retries later.",
			}},
		{name: "drained", node: cordoned(nodetest.WithAnnotations("n", draining, admittedAt(time.Minute))), change: func(v *status.View) { v.Remaining = map[string]string{"n": ""} },
			want: []string{
				"Node n was admitted 60s ago and is being drained.",
				"Its Pods are gone; it waits for the controller to approve the reboot.",
				"At 2026-11-20T12:29:00Z, after --drain-timeout 30m, the controller gives up, uncordons it and retries later.",
			}},
		{name: "drain, without a known timeout", node: cordoned(nodetest.WithAnnotations("n", draining, admittedAt(time.Minute))), change: func(v *status.View) { v.Timeouts = status.Timeouts{} },
			want: []string{"Node n was admitted 60s ago and is being drained."}},
		{name: "drain with a time that cannot be read", node: cordoned(nodetest.WithAnnotations("n", draining, "admitted=x")), want: []string{"Node n was admitted at an unknown time and is being drained."}},
		{name: "approved", node: cordoned(nodetest.WithAnnotations("n", approved, admittedAt(time.Minute), sinceAt(time.Minute))), want: []string{
			"Node n was drained 60s ago, and waits for its agent to reboot it.",
			"See whether the agent runs there: kubectl get pods -A --field-selector spec.nodeName=n.",
			"At 2026-11-20T12:04:00Z, after --agent-timeout 5m, the controller gives up, uncordons it and retries later.",
		}},
		{name: "approved, uncordoned", node: nodetest.WithAnnotations("n", approved, admittedAt(0)), want: []string{
			"Node n was drained, but somebody uncordoned it; it waits for the controller to cordon and drain it again.",
		}},
		{name: "in progress", node: cordoned(notReady(nodetest.WithAnnotations("n", inProgress, sinceAt(time.Minute)))), want: []string{
			`The reboot of Node n has been in progress since 2026-11-20T11:59:00Z (60s ago), and ends when its agent sees a boot ID other than "boot-0".`,
			"The Node is not ready: the machine is down, or still starting.",
		}},
		{name: "overdue", node: cordoned(nodetest.WithAnnotations("n", inProgress, sinceAt(time.Hour))), want: []string{
			`The reboot of Node n has been in progress since 2026-11-20T11:00:00Z (60m ago), and ends when its agent sees a boot ID other than "boot-0".`,
			"That is longer than --reboot-timeout 10m: check the machine. The Node keeps its slot; if the machine is gone for good, delete the Node.",
		}},
		{name: "as long as it may take", node: cordoned(nodetest.WithAnnotations("n", inProgress, sinceAt(10*time.Minute))), want: []string{
			`The reboot of Node n has been in progress since 2026-11-20T11:50:00Z (10m ago), and ends when its agent sees a boot ID other than "boot-0".`,
			"That is longer than --reboot-timeout 10m: check the machine. The Node keeps its slot; if the machine is gone for good, delete the Node.",
		}},
		{name: "in progress, since an unknown time", node: cordoned(nodetest.WithAnnotations("n", inProgress)), want: []string{
			`The reboot of Node n has been in progress since an unknown time, and ends when its agent sees a boot ID other than "boot-0".`,
		}},
		{name: "in progress, without a known timeout", node: cordoned(nodetest.WithAnnotations("n", inProgress, sinceAt(time.Hour))), change: func(v *status.View) { v.Timeouts = status.Timeouts{} }, want: []string{
			`The reboot of Node n has been in progress since 2026-11-20T11:00:00Z (60m ago), and ends when its agent sees a boot ID other than "boot-0".`,
		}},
		{name: "in progress, uncordoned", node: nodetest.WithAnnotations("n", inProgress, sinceAt(time.Minute)), want: []string{
			`The reboot of Node n has been in progress since 2026-11-20T11:59:00Z (60s ago), and ends when its agent sees a boot ID other than "boot-0".`,
			"Somebody uncordoned it; unless the machine is going down already, its agent does not reboot it until it is cordoned.",
		}},
		{name: "cancelled", node: cordoned(nodetest.WithAnnotations("n", admittedAt(0))), want: []string{
			"The reboot of Node n was cancelled after it had been admitted; it keeps its slot until the controller has uncordoned it.",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			view := status.View{State: policy.State{Now: statusTime, Nodes: append([]*corev1.Node{test.node}, test.others...)}, Policy: test.policy, Timeouts: timeouts}
			if test.change != nil {
				test.change(&view)
			}
			sentences, ok := view.Explain("n")
			require.True(t, ok)
			require.Equal(t, test.want, sentences)
			_, ok = view.Explain("unknown")
			require.False(t, ok)
		})
	}
}

func TestControllerProblem(t *testing.T) {
	lease := func(holder string, renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "reboot", Name: "reboot-controller"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: statusTime.Add(-renewed)},
			},
		}
	}
	require.Empty(t, status.ControllerProblem(lease("c-1", 10*time.Second), statusTime))
	require.Empty(t, status.ControllerProblem(lease("c-1", -10*time.Second), statusTime)) // its clock is ahead
	require.Equal(t, "No controller is running: c-1 last renewed Lease reboot/reboot-controller 3m ago.", status.ControllerProblem(lease("c-1", 3*time.Minute), statusTime))
	require.Equal(t, "No controller is running: nobody holds Lease reboot/reboot-controller.", status.ControllerProblem(lease("", 0), statusTime))
	incomplete := lease("c-1", time.Hour)
	incomplete.Spec.RenewTime = nil
	require.Empty(t, status.ControllerProblem(incomplete, statusTime))
	incomplete = lease("c-1", time.Hour)
	incomplete.Spec.LeaseDurationSeconds = nil
	require.Empty(t, status.ControllerProblem(incomplete, statusTime))
	require.Equal(t, "No controller is running: nobody holds Lease reboot/reboot-controller.", status.ControllerProblem(&coordinationv1.Lease{ObjectMeta: lease("", 0).ObjectMeta}, statusTime))
}

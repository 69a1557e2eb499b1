package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/protocol"
)

// idle returns Nodes that are Ready and that no one wants to reboot.
func idle(count int, properties ...nodetest.Property) (nodes []*corev1.Node) {
	for number := range count {
		nodes = append(nodes, nodetest.New(fmt.Sprint("idle-", number), properties...))
	}
	return nodes
}

func selector(t require.TestingT, text string) labels.Selector {
	parsed, err := labels.Parse(text)
	require.NoError(t, err)
	return parsed
}

func limit(t require.TestingT, text string) intstr.IntOrString {
	parsed, err := ParseMaxUnavailable(text)
	require.NoError(t, err)
	return parsed
}

// summary returns each decision as the Node's name and the reason.
func summary(decisions []Decision) []string {
	summary := []string{}
	for _, d := range decisions {
		summary = append(summary, d.Node.Name+" "+string(d.Reason))
	}
	return summary
}

func TestDecide(t *testing.T) {
	workers := nodetest.Label("role", "worker")
	nights := func(_ *State, p *Policy) {
		var err error
		p.Window, err = ParseWindow(nil, "22:00", "06:00", "UTC")
		require.NoError(t, err)
	}
	most := func(text string) func(*State, *Policy) {
		return func(_ *State, p *Policy) { p.MaxUnavailable = limit(t, text) }
	}
	perZone := func(most, perDomain string) func(*State, *Policy) {
		return func(_ *State, p *Policy) {
			p.MaxUnavailable, p.MaxPerDomain, p.TopologyKey = limit(t, most), limit(t, perDomain), nodetest.ZoneLabel
		}
	}
	slots := func(names ...string) func(*State, *Policy) {
		return func(s *State, _ *Policy) {
			s.Slots = map[string]bool{}
			for _, name := range names {
				s.Slots[name] = true
			}
		}
	}
	unfinished := func(s *State, _ *Policy) {
		s.Slots, s.Unfinished = map[string]bool{"a": true}, s.Nodes[:1]
	}
	both := func(a, b func(*State, *Policy)) func(*State, *Policy) {
		return func(s *State, p *Policy) { a(s, p); b(s, p) }
	}

	controlPlane := nodetest.Label("node-role.kubernetes.io/control-plane", "")
	rebooted := func(before time.Duration) nodetest.Property {
		return nodetest.Annotation(protocol.RebootedAnnotation, protocol.FormatTime(nodetest.Monday.Add(-before)))
	}
	rests := func(_ *State, p *Policy) { p.PauseAfterReboot = 10 * time.Minute }

	tests := map[string]struct {
		nodes  []*corev1.Node
		choose func(*State, *Policy) // nil for one Node at a time, and nothing that prevents it
		want   []string
	}{
		"no Nodes":          {nil, nil, []string{}},
		"no requests":       {idle(3), nil, []string{}},
		"one request":       {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b")}, nil, []string{"a Admitted"}},
		"of two, the first": {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)}, nil, []string{"a Admitted", "b BudgetFull"}},

		// Who is considered.
		"all phases but Needed": {
			[]*corev1.Node{nodetest.New("a"), nodetest.New("b", nodetest.Needed), nodetest.New("c", nodetest.Draining), nodetest.New("d", nodetest.Approved), nodetest.New("e", nodetest.InProgress), nodetest.New("f", nodetest.Cancelled)},
			most("5"), []string{"b Admitted"},
		},
		"a Node that is being deleted":      {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Deleted), nodetest.New("b", nodetest.Needed)}, nil, []string{"b Admitted"}},
		"a Node in the ledger":              {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)}, both(slots("a"), most("2")), []string{"b Admitted"}},
		"a value that nobody expects":       {[]*corev1.Node{nodetest.New("a", nodetest.Annotation(protocol.NeededAnnotation, "\x00no\nthanks"))}, nil, []string{"a Admitted"}},
		"times that are none":               {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Annotation(protocol.LastAttemptAnnotation, "soon"), nodetest.Annotation(protocol.RetryAfterAnnotation, "never"))}, nil, []string{"a Admitted"}},
		"annotations that nobody knows":     {[]*corev1.Node{nodetest.New("a", nodetest.Annotation(protocol.Prefix+"reboot", "yes"))}, nil, []string{}},
		"reboot-now without an admission":   {[]*corev1.Node{nodetest.New("a", nodetest.Annotation(protocol.NowAnnotation, "")), nodetest.New("b", nodetest.Needed, nodetest.Annotation(protocol.NowAnnotation, ""))}, nil, []string{"b Admitted"}},
		"a request for the one in progress": {[]*corev1.Node{nodetest.New("a", nodetest.InProgress, nodetest.Needed)}, most("2"), []string{}},

		// A20: the absence of a label is not a domain with the empty value.
		"one control-plane node and one worker": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, controlPlane), nodetest.New("b", nodetest.Needed, controlPlane), nodetest.New("c", nodetest.Needed), nodetest.New("d", nodetest.Needed)},
			func(_ *State, p *Policy) {
				p.MaxUnavailable, p.TopologyKey, p.MaxPerDomain = limit(t, "2"), "node-role.kubernetes.io/control-plane", limit(t, "1")
			},
			[]string{"a Admitted", "b DomainFull", "c Admitted", "d BudgetFull"},
		},
		"a worker is down, and a control-plane node may go": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, controlPlane), nodetest.New("b", nodetest.NotReady), nodetest.New("c", nodetest.Needed)},
			func(_ *State, p *Policy) {
				p.MaxUnavailable, p.TopologyKey, p.MaxPerDomain = limit(t, "3"), "node-role.kubernetes.io/control-plane", limit(t, "1")
			},
			[]string{"a Admitted", "c DomainFull"},
		},
		// A18: what another controller has admitted.
		"admitted by another, and not selected": {
			[]*corev1.Node{nodetest.New("a", nodetest.Draining, nodetest.Annotation(protocol.AdmittedByAnnotation, "other/ledger")), nodetest.New("b", nodetest.Needed, workers)},
			func(s *State, p *Policy) { s.Ledger, p.Selector = "ns/ledger", selector(t, "role=worker") }, []string{"b Admitted"},
		},
		"admitted by another, and selected": {
			[]*corev1.Node{nodetest.New("a", nodetest.Draining, nodetest.Annotation(protocol.AdmittedByAnnotation, "other/ledger")), nodetest.New("b", nodetest.Needed)},
			func(s *State, _ *Policy) { s.Ledger = "ns/ledger" }, []string{"b BudgetFull"},
		},
		"admitted by this one, and not selected any more": {
			[]*corev1.Node{nodetest.New("a", nodetest.Draining, nodetest.Annotation(protocol.AdmittedByAnnotation, "ns/ledger")), nodetest.New("b", nodetest.Needed, workers)},
			func(s *State, p *Policy) { s.Ledger, p.Selector = "ns/ledger", selector(t, "role=worker") }, []string{"b BudgetFull"},
		},
		// The pause after a reboot.
		"it rests itself": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, rebooted(time.Minute))}, rests, []string{"a BudgetFull"},
		},
		"it has rested": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, rebooted(10*time.Minute)), nodetest.New("b", rebooted(time.Hour))}, rests, []string{"a Admitted"},
		},
		"its clock is a little ahead": {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", rebooted(-9*time.Minute))}, rests, []string{"a BudgetFull"}},
		"its clock is wrong":          {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", rebooted(-time.Hour))}, rests, []string{"a Admitted"}},
		"of another pool": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, workers), nodetest.New("b", rebooted(time.Minute))},
			both(rests, func(_ *State, p *Policy) { p.Selector = selector(t, "role=worker") }), []string{"a Admitted"},
		},
		"two slots": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", rebooted(time.Minute)), nodetest.New("c", nodetest.Needed)}, both(rests, most("2")), []string{"a Admitted", "c BudgetFull"},
		},
		"it rests, and is in the ledger": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, rebooted(time.Minute)), nodetest.New("b", nodetest.Needed)}, both(both(rests, most("2")), unfinished), []string{"a Admitted", "b Admitted"},
		},

		// The reasons that come before the budget, and which of two is given.
		"not selected": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed, workers)},
			func(_ *State, p *Policy) { p.Selector = selector(t, "role=worker") }, []string{"a NotSelected", "b Admitted"},
		},
		"paused":           {[]*corev1.Node{nodetest.New("a", nodetest.Needed)}, func(s *State, _ *Policy) { s.Pauses = []protocol.Pause{{}} }, []string{"a Paused"}},
		"outside a window": {[]*corev1.Node{nodetest.New("a", nodetest.Needed)}, nights, []string{"a OutsideWindow"}},
		"within a window": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed)},
			both(nights, func(s *State, _ *Policy) { s.Now = nodetest.Monday.Add(12 * time.Hour) }), []string{"a Admitted"},
		},
		"an attempt failed a moment ago": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Annotation(protocol.RetryAfterAnnotation, protocol.FormatTime(nodetest.Monday.Add(time.Second)))), nodetest.New("b", nodetest.Needed)},
			nil, []string{"a RetryLater", "b Admitted"},
		},
		"the time to retry has come": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Annotation(protocol.RetryAfterAnnotation, protocol.FormatTime(nodetest.Monday)))}, nil, []string{"a Admitted"},
		},
		"blocked by a Pod": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)},
			func(s *State, _ *Policy) { s.Blockers = map[string]string{"a": "shop/migration", "c": "shop/other"} },
			[]string{"a Blocked", "b Admitted"},
		},
		"not selected and paused": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed)},
			func(s *State, p *Policy) { s.Pauses, p.Selector = []protocol.Pause{{}}, selector(t, "role=worker") }, []string{"a NotSelected"},
		},
		"paused and outside a window": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed)}, both(nights, func(s *State, _ *Policy) { s.Pauses = []protocol.Pause{{}} }), []string{"a Paused"},
		},
		"outside a window, and an attempt failed": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Annotation(protocol.RetryAfterAnnotation, protocol.FormatTime(nodetest.Monday.Add(time.Second))))}, nights, []string{"a OutsideWindow"},
		},
		"an attempt failed, and blocked": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Annotation(protocol.RetryAfterAnnotation, protocol.FormatTime(nodetest.Monday.Add(time.Second))))},
			func(s *State, _ *Policy) { s.Blockers = map[string]string{"a": "shop/migration"} }, []string{"a RetryLater"},
		},
		"blocked, and the budget is full": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.NotReady)},
			func(s *State, _ *Policy) { s.Blockers = map[string]string{"a": "shop/migration"} }, []string{"a Blocked"},
		},
		"the budget and the domain are full": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), nodetest.New("b", nodetest.NotReady, nodetest.Zone("1"))}, perZone("1", "1"), []string{"a BudgetFull"},
		},

		// What counts as unavailable.
		"another is not ready":                  {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.NotReady)}, nil, []string{"a BudgetFull"}},
		"another is Unknown":                    {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.UnknownReady)}, nil, []string{"a BudgetFull"}},
		"another has no Ready condition":        {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Without(corev1.NodeReady))}, nil, []string{"a BudgetFull"}},
		"another is Draining":                   {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Draining)}, nil, []string{"a BudgetFull"}},
		"another is Approved":                   {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Approved)}, nil, []string{"a BudgetFull"}},
		"another is InProgress":                 {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.InProgress)}, nil, []string{"a BudgetFull"}},
		"another is Cancelled":                  {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Cancelled)}, nil, []string{"a BudgetFull"}},
		"another is InProgress without a value": {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Annotation(protocol.InProgressAnnotation, ""))}, nil, []string{"a BudgetFull"}},
		"another is being deleted, and InProgress": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.InProgress, nodetest.Deleted)}, nil, []string{"a BudgetFull"},
		},
		"another is gone": {[]*corev1.Node{nodetest.New("a", nodetest.Needed)}, nil, []string{"a Admitted"}},
		"another is cordoned, which is not unavailable": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", func(node *corev1.Node) { node.Spec.Unschedulable = true })}, nil, []string{"a Admitted"},
		},
		"another is only in the ledger":                 {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b")}, slots("b"), []string{"a BudgetFull"}},
		"another is only in the ledger, and not cached": {[]*corev1.Node{nodetest.New("a", nodetest.Needed)}, slots("b"), []string{"a BudgetFull"}},
		"another is in the ledger and InProgress: one slot": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.InProgress)}, both(slots("b"), most("2")), []string{"a Admitted"},
		},
		"another is InProgress and not ready: one slot": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.InProgress, nodetest.NotReady)}, most("2"), []string{"a Admitted"},
		},
		"two others are unavailable, of which one is enough": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.UnknownReady), nodetest.New("c", nodetest.Draining)}, most("3"), []string{"a Admitted"},
		},
		"two others are unavailable, which is too many": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.UnknownReady), nodetest.New("c", nodetest.Draining)}, most("2"), []string{"a BudgetFull"},
		},
		"more are unavailable than allowed": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.NotReady), nodetest.New("c", nodetest.NotReady)}, nil, []string{"a BudgetFull"},
		},

		// A Node that is unavailable anyway.
		"one that is not ready does not wait for itself":          {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.NotReady)}, nil, []string{"a Admitted"}},
		"one that is Unknown does not wait for itself":            {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.UnknownReady)}, nil, []string{"a Admitted"}},
		"one without Ready condition does not wait for itself":    {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Without(corev1.NodeReady))}, nil, []string{"a Admitted"}},
		"one without any conditions does not wait for itself":     {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Without(corev1.NodeReady, corev1.NodeDiskPressure))}, nil, []string{"a Admitted"}},
		"one that is not ready does not wait for one like it":     {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.NotReady), nodetest.New("b", nodetest.NotReady)}, nil, []string{"a Admitted"}},
		"one that is not ready waits for one that is InProgress":  {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.NotReady), nodetest.New("b", nodetest.InProgress)}, nil, []string{"a BudgetFull"}},
		"of two that are not ready, one is admitted at a time":    {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.NotReady), nodetest.New("b", nodetest.Needed, nodetest.NotReady)}, nil, []string{"a Admitted", "b BudgetFull"}},
		"one that is not ready takes the slot of one that is":     {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.NotReady), nodetest.New("b", nodetest.Needed)}, nil, []string{"a Admitted", "b BudgetFull"}},
		"one that is ready waits for one that is not":             {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed, nodetest.NotReady)}, nil, []string{"a BudgetFull", "b Admitted"}},
		"one that is not ready takes one slot, and leaves others": {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.NotReady), nodetest.New("b", nodetest.Needed)}, most("2"), []string{"a Admitted", "b Admitted"}},

		// Limits.
		"three of four":                  {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed), nodetest.New("c", nodetest.Needed), nodetest.New("d", nodetest.Needed)}, most("3"), []string{"a Admitted", "b Admitted", "c Admitted", "d BudgetFull"}},
		"a limit above the cluster":      {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)}, most("10"), []string{"a Admitted", "b Admitted"}},
		"all of them":                    {[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)}, most("100%"), []string{"a Admitted", "b Admitted"}},
		"25% of 3, rounded up":           {append(idle(1), nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)), most("25%"), []string{"a Admitted", "b BudgetFull"}},
		"25% of 4":                       {append(idle(2), nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)), most("25%"), []string{"a Admitted", "b BudgetFull"}},
		"25% of 5, rounded up":           {append(idle(3), nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)), most("25%"), []string{"a Admitted", "b Admitted"}},
		"1% of 1, rounded up":            {[]*corev1.Node{nodetest.New("a", nodetest.Needed)}, most("1%"), []string{"a Admitted"}},
		"25% of 5, scaled down to 4":     {append(idle(2), nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.InProgress)), most("25%"), []string{"a BudgetFull"}},
		"50% of the selected Nodes only": {append(idle(6), nodetest.New("a", nodetest.Needed, workers), nodetest.New("b", nodetest.Needed, workers)), both(most("50%"), func(_ *State, p *Policy) { p.Selector = selector(t, "role=worker") }), []string{"a Admitted", "b BudgetFull"}},

		// Nodes that are not selected.
		"one that is not ready and not selected does not count": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, workers), nodetest.New("b", nodetest.NotReady)},
			func(_ *State, p *Policy) { p.Selector = selector(t, "role=worker") }, []string{"a Admitted"},
		},
		"one that is InProgress and not selected any more counts": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, workers), nodetest.New("b", nodetest.InProgress)},
			func(_ *State, p *Policy) { p.Selector = selector(t, "role=worker") }, []string{"a BudgetFull"},
		},
		"one that is in the ledger and not selected any more counts": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, workers), nodetest.New("b", nodetest.Needed)},
			both(slots("b"), func(_ *State, p *Policy) { p.Selector = selector(t, "role=worker") }), []string{"a BudgetFull"},
		},

		// Order.
		"by name": {[]*corev1.Node{nodetest.New("c", nodetest.Needed), nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)}, nil, []string{"a Admitted", "b BudgetFull", "c BudgetFull"}},
		"by the last attempt, those without first": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.LastAttempt(time.Minute)), nodetest.New("b", nodetest.Needed, nodetest.LastAttempt(time.Hour)), nodetest.New("c", nodetest.Needed)},
			nil, []string{"c Admitted", "b BudgetFull", "a BudgetFull"},
		},
		"one that cannot go leaves its turn to the next": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)},
			func(s *State, _ *Policy) { s.Blockers = map[string]string{"a": "shop/migration"} }, []string{"a Blocked", "b Admitted"},
		},
		"the controller's own Node last": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed, nodetest.LastAttempt(time.Minute)), nodetest.New("c", nodetest.Needed)},
			func(_ *State, p *Policy) { p.OwnNode = "a" }, []string{"c Admitted", "b BudgetFull", "a BudgetFull"},
		},
		"the controller's own Node, when no other can go": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)},
			func(s *State, p *Policy) { p.OwnNode, s.Blockers = "a", map[string]string{"b": "shop/migration"} }, []string{"b Blocked", "a Admitted"},
		},
		"the controller's own Node alone": {[]*corev1.Node{nodetest.New("a", nodetest.Needed)}, func(_ *State, p *Policy) { p.OwnNode = "a" }, []string{"a Admitted"}},

		// Domains.
		"one for each domain": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), nodetest.New("b", nodetest.Needed, nodetest.Zone("1")), nodetest.New("c", nodetest.Needed, nodetest.Zone("2"))},
			perZone("3", "1"), []string{"a Admitted", "b DomainFull", "c Admitted"},
		},
		"the domain of one that is not ready": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), nodetest.New("b", nodetest.NotReady, nodetest.Zone("1")), nodetest.New("c", nodetest.Needed, nodetest.Zone("2"))},
			perZone("3", "1"), []string{"a DomainFull", "c Admitted"},
		},
		"one that is not ready does not wait for itself in its domain": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.NotReady, nodetest.Zone("1")), nodetest.New("b", nodetest.Needed, nodetest.Zone("1"))}, perZone("3", "1"), []string{"a Admitted", "b DomainFull"},
		},
		"domains share the budget": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), nodetest.New("b", nodetest.Needed, nodetest.Zone("2")), nodetest.New("c", nodetest.Needed, nodetest.Zone("3"))},
			perZone("2", "1"), []string{"a Admitted", "b Admitted", "c BudgetFull"},
		},
		"Nodes without the label are a domain": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed), nodetest.New("c", nodetest.Needed, nodetest.Zone("1"))},
			perZone("3", "1"), []string{"a Admitted", "b DomainFull", "c Admitted"},
		},
		"a percentage of a domain, rounded up": {
			append(idle(3, nodetest.Zone("2")), nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), nodetest.New("b", nodetest.Needed, nodetest.Zone("1")), nodetest.New("c", nodetest.Needed, nodetest.Zone("2")), nodetest.New("d", nodetest.Needed, nodetest.Zone("2")), nodetest.New("e", nodetest.Needed, nodetest.Zone("2"))),
			perZone("100%", "34%"), []string{"a Admitted", "b DomainFull", "c Admitted", "d Admitted", "e Admitted"},
		},
		"a percentage of a domain of one": {[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1"))}, perZone("1", "1%"), []string{"a Admitted"}},
		"an empty budget of a domain that is not full": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), nodetest.New("b", nodetest.InProgress, nodetest.Zone("2"))}, perZone("1", "1"), []string{"a BudgetFull"},
		},
		"one in the ledger that no controller has admitted": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed)}, unfinished, []string{"a Admitted", "b BudgetFull"},
		},
		"one in the ledger that no controller has admitted, outside the window": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed)}, both(unfinished, nights), []string{"a OutsideWindow"},
		},
		"one in the ledger that no controller has admitted, and that is no longer selected": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed), nodetest.New("b", nodetest.Needed, workers)},
			both(unfinished, func(_ *State, p *Policy) { p.Selector = selector(t, "role=worker") }), []string{"a NotSelected", "b BudgetFull"},
		},
		"one in the ledger counts in its domain": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), nodetest.New("b", nodetest.Zone("1")), nodetest.New("c", nodetest.Needed, nodetest.Zone("2"))},
			both(slots("b"), perZone("3", "1")), []string{"a DomainFull", "c Admitted"},
		},
		"one in the ledger that is not cached counts in each domain": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), nodetest.New("b", nodetest.Needed, nodetest.Zone("2"))},
			both(slots("new"), perZone("3", "1")), []string{"a DomainFull", "b DomainFull"},
		},
		"the label without a limit for domains": {
			[]*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), nodetest.New("b", nodetest.Needed, nodetest.Zone("1"))}, most("2"), []string{"a Admitted", "b Admitted"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			state := State{Nodes: test.nodes, Now: nodetest.Monday}
			policy := Policy{MaxUnavailable: limit(t, "1"), Selector: labels.Everything()}
			if test.choose != nil {
				test.choose(&state, &policy)
			}
			require.Equal(t, test.want, summary(Decide(state, policy)))
		})
	}
}

func TestDecisionsExplainThemselves(t *testing.T) {
	nights, err := ParseWindow(nil, "22:00", "06:00", "Europe/Berlin")
	require.NoError(t, err)
	retry := nodetest.Monday.Add(10 * time.Minute)
	tests := map[string]struct {
		other  *corev1.Node
		choose func(*State, *Policy)
		want   Decision
	}{
		"admitted": {nodetest.New("b"), func(*State, *Policy) {}, Decision{Reason: Admitted}},
		"not selected": {
			nodetest.New("b"), func(_ *State, p *Policy) { p.Selector = selector(t, "role=worker") },
			Decision{Reason: NotSelected, Message: "--node-selector role=worker does not select it"},
		},
		"paused": {nodetest.New("b"), func(s *State, _ *Policy) { s.Pauses = []protocol.Pause{{}} }, Decision{Reason: Paused, Message: "reboots are paused"}},
		"outside a window": {
			nodetest.New("b"), func(_ *State, p *Policy) { p.Window = nights },
			Decision{Reason: OutsideWindow, Message: "the next window begins at Mon 2026-01-05 22:00 CET", Again: nodetest.Monday.Add(9 * time.Hour)},
		},
		"after a failure": {
			nodetest.New("b"), func(s *State, _ *Policy) {
				s.Nodes[0] = nodetest.New("a", nodetest.Needed, nodetest.Zone("1"), nodetest.Annotation(protocol.RetryAfterAnnotation, protocol.FormatTime(retry)))
			},
			Decision{Reason: RetryLater, Message: "the last attempt failed; the next one is due at 2026-01-05T12:10:00Z", Again: retry},
		},
		"blocked": {
			nodetest.New("b"), func(s *State, _ *Policy) { s.Blockers = map[string]string{"a": "shop/migration"} },
			Decision{Reason: Blocked, Message: "Pod shop/migration blocks it"},
		},
		"the budget is full": {
			nodetest.New("b", nodetest.NotReady), func(*State, *Policy) {},
			Decision{Reason: BudgetFull, Message: "1 of 2 Nodes are unavailable; --max-unavailable is 1"},
		},
		"the budget is full, as a percentage": {
			nodetest.New("b", nodetest.NotReady), func(_ *State, p *Policy) { p.MaxUnavailable = limit(t, "10%") },
			Decision{Reason: BudgetFull, Message: "1 of 2 Nodes are unavailable; --max-unavailable is 10%"},
		},
		"a named pause": {nodetest.New("b"), func(s *State, _ *Policy) { s.Pauses = []protocol.Pause{{Name: "ceph", Why: "HEALTH_WARN"}} },
			Decision{Reason: Paused, Message: "reboots are paused by ceph: HEALTH_WARN"}},
		"no agent": {nodetest.New("b"), func(s *State, _ *Policy) { s.Agents = map[string]bool{"b": true} },
			Decision{Reason: NoAgent, Message: "no agent is running on it, so nobody would reboot it after the drain"}},
		"another keeps its slot after its reboot": {
			nodetest.New("b", nodetest.Annotation(protocol.RebootedAnnotation, protocol.FormatTime(nodetest.Monday.Add(-time.Minute)))),
			func(_ *State, p *Policy) { p.PauseAfterReboot = 10 * time.Minute },
			Decision{Reason: BudgetFull, Message: "1 of 2 Nodes are unavailable; --max-unavailable is 1", Again: nodetest.Monday.Add(9 * time.Minute)},
		},
		"the domain with an empty value is full": {
			nodetest.New("b", nodetest.NotReady, nodetest.Label("control-plane", "")), func(s *State, p *Policy) {
				s.Nodes[0] = nodetest.New("a", nodetest.Needed, nodetest.Label("control-plane", ""))
				p.MaxUnavailable, p.TopologyKey, p.MaxPerDomain = limit(t, "2"), "control-plane", limit(t, "1")
			},
			Decision{Reason: DomainFull, Message: "1 of 2 Nodes with an empty label control-plane are unavailable; --max-unavailable-per-domain is 1"},
		},
		"the domain without the label is full": {
			nodetest.New("b", nodetest.NotReady), func(s *State, p *Policy) {
				s.Nodes[0] = nodetest.New("a", nodetest.Needed)
				p.MaxUnavailable, p.TopologyKey, p.MaxPerDomain = limit(t, "2"), "control-plane", limit(t, "1")
			},
			Decision{Reason: DomainFull, Message: "1 of 2 Nodes without the label control-plane are unavailable; --max-unavailable-per-domain is 1"},
		},
		"the domain is full": {
			nodetest.New("b", nodetest.NotReady, nodetest.Zone("1")), func(_ *State, p *Policy) {
				p.MaxUnavailable, p.TopologyKey, p.MaxPerDomain = limit(t, "2"), nodetest.ZoneLabel, limit(t, "50%")
			},
			Decision{Reason: DomainFull, Message: "1 of 2 Nodes with topology.kubernetes.io/zone=1 are unavailable; --max-unavailable-per-domain is 50%"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			state := State{Nodes: []*corev1.Node{nodetest.New("a", nodetest.Needed, nodetest.Zone("1")), test.other}, Now: nodetest.Monday}
			policy := Policy{MaxUnavailable: limit(t, "1"), Selector: labels.Everything()}
			test.choose(&state, &policy)
			test.want.Node = state.Nodes[0]
			decisions := Decide(state, policy)
			require.Len(t, decisions, 1)
			require.WithinDuration(t, test.want.Again, decisions[0].Again, 0)
			decisions[0].Again = test.want.Again // the same time, maybe in another time zone
			require.Equal(t, test.want, decisions[0])
		})
	}
}

// Every change of a Node is followed by a decision about all of them.
func BenchmarkDecide(b *testing.B) {
	var nodes []*corev1.Node
	for i := range 5000 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i*7919%5000), Annotations: map[string]string{protocol.NeededAnnotation: ""}}}
		if i < 100 {
			node.Annotations[protocol.AdmittedAnnotation] = protocol.FormatTime(time.Now())
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		nodes = append(nodes, node)
	}
	policy := Policy{MaxUnavailable: intstr.FromInt32(100), Selector: labels.Everything()}
	b.ReportAllocs()
	for b.Loop() {
		Decide(State{Nodes: nodes, Now: time.Now()}, policy)
	}
}

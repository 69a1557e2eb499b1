package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/protocol"
)

// chance returns true in one case out of n.
func chance(t *rapid.T, n int, label string) bool { return rapid.IntRange(1, n).Draw(t, label) == n }

func randomNode(t *rapid.T, name string) *corev1.Node {
	return nodetest.New(name,
		rapid.SampledFrom([]nodetest.Property{nodetest.Ready(corev1.ConditionTrue), nodetest.NotReady, nodetest.UnknownReady, nodetest.Without(corev1.NodeReady)}).Draw(t, name+" is ready"),
		rapid.SampledFrom([]nodetest.Property{nodetest.Needed, nodetest.Needed, nodetest.Needed, nodetest.All(), nodetest.Draining, nodetest.Approved, nodetest.InProgress, nodetest.Cancelled}).Draw(t, name+" is"),
		rapid.SampledFrom([]nodetest.Property{nodetest.All(), nodetest.Zone("1"), nodetest.Zone("2")}).Draw(t, name+" is in zone"),
		rapid.SampledFrom([]nodetest.Property{nodetest.All(), nodetest.Label("role", "worker")}).Draw(t, name+" is a worker"),
		rapid.SampledFrom([]nodetest.Property{nodetest.All(), nodetest.LastAttempt(time.Hour), nodetest.LastAttempt(time.Minute)}).Draw(t, name+" had its last attempt"),
		rapid.SampledFrom([]nodetest.Property{nodetest.All(), nodetest.All(), nodetest.Annotation(protocol.RetryAfterAnnotation, protocol.FormatTime(nodetest.Monday.Add(time.Minute)))}).Draw(t, name+" is retried"))
}

func randomPolicy(t *rapid.T) Policy {
	most := func(label string) intstr.IntOrString {
		return limit(t, rapid.SampledFrom([]string{"1", "2", "3", "10%", "34%", "100%"}).Draw(t, label))
	}
	return Policy{
		MaxUnavailable: most("max unavailable"),
		TopologyKey:    rapid.SampledFrom([]string{"", nodetest.ZoneLabel}).Draw(t, "topology key"),
		MaxPerDomain:   most("max unavailable per domain"),
		Selector:       selector(t, rapid.SampledFrom([]string{"", "role=worker"}).Draw(t, "selector")),
		OwnNode:        rapid.SampledFrom([]string{"", "n0", "n3"}).Draw(t, "own Node"),
	}
}

// usage is how many Nodes of a cluster, or of one domain, are in use; counted without what Decide uses to count.
type usage struct{ nodes, down, held int }

func usageOf(state State, policy Policy, held map[string]bool, inDomain func(*corev1.Node) bool) (u usage) {
	known := map[string]bool{}
	for _, node := range state.Nodes {
		known[node.Name] = true
		if !inDomain(node) || !held[node.Name] && !policy.Selector.Matches(labels.Set(node.Labels)) {
			continue
		}
		u.nodes++
		if held[node.Name] {
			u.held++
		}
		if held[node.Name] || !protocol.IsReady(node) {
			u.down++
		}
	}
	for name := range held {
		if !known[name] {
			u.held, u.down = u.held+1, u.down+1
		}
	}
	return u
}

// mayGo is the rule in its plainest form: a reboot must neither make more Nodes unavailable than allowed, nor be one of
// more reboots than allowed.
func (u usage) mayGo(node *corev1.Node, limit intstr.IntOrString) bool {
	most, err := intstr.GetScaledValueFromIntOrPercent(&limit, u.nodes, true)
	down := u.down
	if protocol.IsReady(node) {
		down++
	}
	return err == nil && u.held+1 <= most && (down <= most || !protocol.IsReady(node))
}

func TestDecideInRandomClusters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy, state := randomPolicy(t), State{Now: nodetest.Monday, Slots: map[string]bool{}, Blockers: map[string]string{}}
		if chance(t, 10, "paused") {
			state.Pauses = []protocol.Pause{{}}
		}
		held := map[string]bool{}
		for number := range rapid.IntRange(0, 12).Draw(t, "Nodes") {
			node := randomNode(t, fmt.Sprint("n", number))
			state.Nodes = append(state.Nodes, node)
			state.Slots[node.Name] = chance(t, 8, node.Name+" is in the ledger")
			if !state.Slots[node.Name] {
				delete(state.Slots, node.Name)
			}
			if chance(t, 8, node.Name+" is blocked") {
				state.Blockers[node.Name] = "shop/migration"
			}
			if state.Slots[node.Name] && protocol.PhaseOf(node) == protocol.Needed && chance(t, 2, node.Name+" was entered but not admitted") {
				state.Unfinished = append(state.Unfinished, node)
			}
			held[node.Name] = state.Slots[node.Name] || protocol.PhaseOf(node) != protocol.Idle && protocol.PhaseOf(node) != protocol.Needed
			if !held[node.Name] {
				delete(held, node.Name)
			}
		}
		if chance(t, 8, "a Node is only in the ledger") {
			state.Slots["unknown"], held["unknown"] = true, true
		}
		before := state
		before.Nodes, before.Slots = nil, maps.Clone(state.Slots)
		for _, node := range state.Nodes {
			before.Nodes = append(before.Nodes, node.DeepCopy())
		}

		decisions := Decide(state, policy)

		require.Equal(t, before, state, "it has no effects")
		shuffled := state
		shuffled.Nodes = rapid.Permutation(state.Nodes).Draw(t, "the Nodes in another order")
		require.Equal(t, decisions, Decide(shuffled, policy), "the order of the Nodes does not matter")

		waiting := map[string]bool{}
		for _, node := range state.Nodes {
			if protocol.PhaseOf(node) == protocol.Needed && (!held[node.Name] || slices.Contains(state.Unfinished, node)) {
				waiting[node.Name] = true
			}
		}
		for i, d := range decisions {
			require.True(t, waiting[d.Node.Name], "there is one decision about each Node that waits, and this is about %s", d.Node.Name)
			delete(waiting, d.Node.Name)
			if i > len(state.Unfinished) && d.Node.Name != policy.OwnNode {
				previous := decisions[i-1].Node
				require.NotEqual(t, policy.OwnNode, previous.Name, "the controller's own Node is the last one")
				require.False(t, protocol.TimeOf(d.Node, protocol.LastAttemptAnnotation).Before(protocol.TimeOf(previous, protocol.LastAttemptAnnotation)), "%s had its turn before %s", d.Node.Name, previous.Name)
			}
			isUnfinished := slices.Contains(state.Unfinished, d.Node)
			require.Equal(t, isUnfinished, i < len(state.Unfinished), "those that hold a slot come first")
			delete(held, d.Node.Name) // a Node does not wait for itself
			cluster := usageOf(state, policy, held, func(*corev1.Node) bool { return true })
			domain := usageOf(state, policy, held, func(node *corev1.Node) bool {
				return node.Labels[nodetest.ZoneLabel] == d.Node.Labels[nodetest.ZoneLabel]
			})
			mayGo := cluster.mayGo(d.Node, policy.MaxUnavailable)
			mayGoInDomain := policy.TopologyKey == "" || domain.mayGo(d.Node, policy.MaxPerDomain)
			other := len(state.Pauses) > 0 || !policy.Selector.Matches(labels.Set(d.Node.Labels)) ||
				protocol.TimeOf(d.Node, protocol.RetryAfterAnnotation).After(state.Now) || state.Blockers[d.Node.Name] != ""
			require.Equal(t, !other && mayGo && mayGoInDomain, d.Reason == Admitted, "%s: %s %s; the cluster: %+v, the domain: %+v", d.Node.Name, d.Reason, d.Message, cluster, domain)
			require.Equal(t, !other && !mayGo, d.Reason == BudgetFull)
			require.Equal(t, !other && mayGo && !mayGoInDomain, d.Reason == DomainFull)
			require.Equal(t, d.Reason == Admitted, d.Message == "")
			require.Equal(t, d.Reason == RetryLater, !d.Again.IsZero())
			if d.Reason == Admitted || isUnfinished {
				held[d.Node.Name] = true
			}
		}
		require.Empty(t, waiting, "there is a decision about each Node that waits")
	})
}

// cluster is the API server, its Nodes and their kubelets and agents, in as little as the rules of admission need. Every
// write has the next resourceVersion, and every resourceVersion can still be read, as by a cache that lags behind.
type cluster struct {
	now           time.Time
	version       int
	nodes         map[string]*corev1.Node         // never modified, only replaced
	history       map[int]map[string]*corev1.Node // resourceVersion → Nodes
	slots         map[string]string               // the ledger
	ledgerVersion int
	policy        Policy
	created       int // Nodes, of which some may be deleted
}

func newCluster(policy Policy) *cluster {
	return &cluster{now: nodetest.Monday, version: 98, nodes: map[string]*corev1.Node{}, history: map[int]map[string]*corev1.Node{98: {}}, slots: map[string]string{}, policy: policy}
}

// put makes a Node what it is from the next resourceVersion on; nil for deleted.
func (c *cluster) put(name string, node *corev1.Node) {
	c.version++
	c.nodes = maps.Clone(c.nodes)
	delete(c.nodes, name)
	if node != nil {
		node.ResourceVersion = strconv.Itoa(c.version)
		c.nodes[name] = node
	}
	c.history[c.version] = c.nodes
}

func (c *cluster) addNode() {
	c.put(fmt.Sprint("n", c.created), nodetest.New(fmt.Sprint("n", c.created), nodetest.Zone(strconv.Itoa(c.created%2))))
	c.created++
}

// write changes a Node on the condition that it is the one that was read, and reports whether it is.
func (c *cluster) write(read *corev1.Node, change protocol.Change) bool {
	node, ok := c.nodes[read.Name]
	if !ok || node.ResourceVersion != read.ResourceVersion {
		return false
	}
	c.put(read.Name, nodetest.Apply(node, change.Annotations, change.Unschedulable))
	return true
}

// pick returns a Node in one of some phases, nil if there is none.
func (c *cluster) pick(t *rapid.T, phases ...protocol.Phase) *corev1.Node {
	var names []string
	for name, node := range c.nodes {
		if slices.Contains(phases, protocol.PhaseOf(node)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return c.nodes[rapid.SampledFrom(names).Draw(t, "Node")]
}

// next moves a Node on, as its agent, or a controller that has nothing to decide, would.
func (c *cluster) next(node *corev1.Node) {
	switch protocol.PhaseOf(node) {
	case protocol.Draining:
		c.write(node, protocol.NewChange().Remove(protocol.NeededAnnotation).Set(protocol.NowAnnotation, ""))
	case protocol.Approved:
		c.write(node, protocol.NewChange().Remove(protocol.NowAnnotation).Set(protocol.InProgressAnnotation, "boot"))
	case protocol.InProgress, protocol.Cancelled:
		c.write(node, protocol.End(node, c.now))
	}
}

// requireWithinBudget is called after an admission.
func (c *cluster) requireWithinBudget(t require.TestingT, by string) {
	all, domains := 0, map[string]int{}
	for _, node := range c.nodes {
		if protocol.PhaseOf(node).HoldsSlot() {
			all++
			domains[node.Labels[nodetest.ZoneLabel]]++
		}
	}
	require.LessOrEqual(t, all, scale(c.policy.MaxUnavailable, len(c.nodes)), "Nodes admitted at the same time, the last one by %s", by)
	for domain, count := range domains {
		if c.policy.TopologyKey != "" {
			require.LessOrEqual(t, count, c.policy.MaxPerDomain.IntValue(), "Nodes of zone %s admitted at the same time, the last one by %s", domain, by)
		}
	}
}

// admitter is the admission of one controller, in steps between which anything may happen. Its cache shows the cluster as
// it was at an earlier resourceVersion.
type admitter struct {
	name     string
	cache    int               // resourceVersion
	slots    map[string]string // the ledger, as it was read; nil if it was not
	version  int               // of the ledger, as it was read
	admitted []*corev1.Node    // in the ledger, to be drained
}

func (a *admitter) readLedger(c *cluster) { a.slots, a.version = maps.Clone(c.slots), c.ledgerVersion }

// decide does what Controller.admit does between reading and writing the ledger.
func (a *admitter) decide(c *cluster) {
	if a.slots == nil {
		return
	}
	nodes := slices.Collect(maps.Values(c.history[a.cache]))
	l := &protocol.Ledger{Slots: a.slots}
	a.admitted = nil
	unfinished := l.Settle(nodes, strconv.Itoa(a.cache))
	saved := true
	for _, d := range Decide(State{Nodes: nodes, Slots: l.Names(), Unfinished: unfinished, Now: c.now}, c.policy) {
		if d.Reason == Admitted {
			saved = saved && l.Slots[d.Node.Name] == d.Node.ResourceVersion
			l.Slots[d.Node.Name] = d.Node.ResourceVersion
			a.admitted = append(a.admitted, d.Node)
		}
	}
	if !saved && c.ledgerVersion != a.version { // a Conflict
		a.admitted = nil
	} else if !saved {
		c.slots, c.ledgerVersion = maps.Clone(l.Slots), c.ledgerVersion+1
	}
	a.slots = nil
}

// drain does what Controller.startDrain does with the first of the admitted Nodes, and reports whether there was one.
func (a *admitter) drain(t require.TestingT, c *cluster) bool {
	if len(a.admitted) == 0 {
		return false
	}
	node := a.admitted[0]
	a.admitted = a.admitted[1:]
	if c.write(node, protocol.NewChange().Set(protocol.AdmittedAnnotation, protocol.FormatTime(c.now))) {
		c.requireWithinBudget(t, a.name)
	}
	return true
}

// Two controllers believe that they lead. Each acts on a cache that may be as old as it likes, and stops between any two
// steps for as long as it likes. Meanwhile, the administrator, the agents and the kubelets do what they do.
func TestTheBudgetHoldsWithTwoControllersAndStaleCaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{MaxUnavailable: intstr.FromInt32(rapid.Int32Range(1, 3).Draw(t, "max unavailable")), MaxPerDomain: intstr.FromInt32(1), Selector: labels.Everything()}
		policy.TopologyKey = rapid.SampledFrom([]string{"", nodetest.ZoneLabel}).Draw(t, "topology key")
		c := newCluster(policy)
		for range rapid.IntRange(1, 6).Draw(t, "Nodes") {
			c.addNode()
		}
		controllers := []*admitter{{name: "controller 0", cache: c.version}, {name: "controller 1", cache: c.version}}
		some := func(t *rapid.T) *admitter { return rapid.SampledFrom(controllers).Draw(t, "controller") }
		every := []protocol.Phase{protocol.Idle, protocol.Needed, protocol.Draining, protocol.Approved, protocol.InProgress, protocol.Cancelled}
		onNode := func(act func(*rapid.T, *corev1.Node), phases ...protocol.Phase) func(*rapid.T) {
			return func(t *rapid.T) {
				if node := c.pick(t, phases...); node != nil {
					act(t, node)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"the administrator asks for a reboot": onNode(func(_ *rapid.T, node *corev1.Node) {
				c.write(node, protocol.NewChange().Set(protocol.NeededAnnotation, ""))
			}, protocol.Idle, protocol.InProgress, protocol.Cancelled),
			"the administrator cancels one": onNode(func(_ *rapid.T, node *corev1.Node) {
				c.write(node, protocol.NewChange().Remove(protocol.NeededAnnotation, protocol.NowAnnotation))
			}, protocol.Needed, protocol.Draining, protocol.Approved),
			"a drain takes too long": onNode(func(_ *rapid.T, node *corev1.Node) { c.write(node, protocol.End(node, c.now)) }, protocol.Draining),
			"a Node moves on":        onNode(func(_ *rapid.T, node *corev1.Node) { c.next(node) }, protocol.Draining, protocol.Approved, protocol.InProgress, protocol.Cancelled),
			"a kubelet reports": onNode(func(t *rapid.T, node *corev1.Node) {
				node = node.DeepCopy()
				rapid.SampledFrom([]nodetest.Property{nodetest.NotReady, nodetest.Ready(corev1.ConditionTrue)}).Draw(t, "ready")(node)
				c.put(node.Name, node)
			}, every...),
			"a Node is deleted": onNode(func(t *rapid.T, node *corev1.Node) {
				if chance(t, 4, "really") {
					c.put(node.Name, nil)
				}
			}, every...),
			"a Node is added": func(t *rapid.T) {
				if chance(t, 4, "really") {
					c.addNode()
				}
			},
			"a Node comes again under the same name": func(*rapid.T) {
				for number := range c.created {
					if name := fmt.Sprint("n", number); c.nodes[name] == nil {
						c.put(name, nodetest.New(name, nodetest.Zone(strconv.Itoa(number%2)), nodetest.Needed))
						return
					}
				}
			},
			"a controller observes": func(t *rapid.T) {
				a := some(t)
				a.cache = rapid.IntRange(a.cache, c.version).Draw(t, "resourceVersion")
			},
			"a controller reads the ledger":      func(t *rapid.T) { some(t).readLedger(c) },
			"a controller decides and writes it": func(t *rapid.T) { some(t).decide(c) },
			"a controller starts a drain":        func(t *rapid.T) { a := some(t); a.drain(t, c) },
			"a controller restarts":              func(t *rapid.T) { *some(t) = admitter{name: "one that restarted", cache: c.version} },
			"time passes":                        func(*rapid.T) { c.now = c.now.Add(time.Minute) },
			"a controller does it all, up to date": func(t *rapid.T) {
				a := some(t)
				a.readLedger(c)
				a.cache = c.version
				a.decide(c)
				for a.drain(t, c) {
				}
			},
		})
		c.requireAllReboot(t)
	})
}

// requireAllReboot lets a controller that is up to date and all agents work, and kubelets report that they are ready. All
// Nodes that wait are rebooted.
func (c *cluster) requireAllReboot(t require.TestingT) {
	for name, node := range c.nodes {
		node = node.DeepCopy()
		nodetest.Ready(corev1.ConditionTrue)(node)
		c.put(name, node)
	}
	a := &admitter{name: "the last one"}
	for range 3 * (len(c.nodes) + 1) {
		c.now = c.now.Add(time.Minute)
		a.readLedger(c)
		a.cache = c.version
		a.decide(c)
		for a.drain(t, c) {
		}
		for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
			for protocol.PhaseOf(c.nodes[name]).HoldsSlot() {
				c.next(c.nodes[name])
			}
		}
	}
	for _, node := range c.nodes {
		require.Equal(t, protocol.Idle, protocol.PhaseOf(node), "Node %s starves; it has %v, the ledger %v", node.Name, node.Annotations, c.slots)
	}
}

// An administrator who asks for a reboot of every Node again and again keeps no Node from its turn, whatever the limits are
// and however long each Node takes: none overtakes the same Node in its domain twice.
func TestEveryNodeHasItsTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(Policy{
			MaxUnavailable: limit(t, rapid.SampledFrom([]string{"1", "2", "34%"}).Draw(t, "max unavailable")),
			TopologyKey:    rapid.SampledFrom([]string{"", nodetest.ZoneLabel}).Draw(t, "topology key"),
			MaxPerDomain:   intstr.FromInt32(1), Selector: labels.Everything(),
		})
		const longest = 4 // minutes
		takes := map[string]time.Duration{}
		for range rapid.IntRange(1, 8).Draw(t, "Nodes") {
			name := fmt.Sprint("n", c.created)
			c.addNode()
			takes[name] = time.Minute * time.Duration(rapid.IntRange(1, longest).Draw(t, name+" takes"))
		}
		names := slices.Sorted(maps.Keys(c.nodes))
		reboots, overtaken := map[string]int{}, map[string]map[string]int{}
		for range 2 * longest * len(names) {
			c.now = c.now.Add(time.Minute)
			for _, name := range names {
				if node := c.nodes[name]; protocol.PhaseOf(node) == protocol.Idle {
					c.write(node, protocol.NewChange().Set(protocol.NeededAnnotation, ""))
				} else if protocol.PhaseOf(node) == protocol.Draining && !c.now.Before(protocol.TimeOf(node, protocol.AdmittedAnnotation).Add(takes[name])) {
					c.write(node, protocol.End(node, c.now)) // and it needs another one
					reboots[name]++
				}
			}
			decisions := Decide(State{Nodes: slices.Collect(maps.Values(c.nodes)), Now: c.now}, c.policy)
			for _, d := range decisions {
				if d.Reason != Admitted {
					continue
				}
				c.write(d.Node, protocol.NewChange().Set(protocol.AdmittedAnnotation, protocol.FormatTime(c.now)))
				c.requireWithinBudget(t, "the only controller")
				delete(overtaken, d.Node.Name)
				for _, waiting := range decisions {
					if waiting.Reason == Admitted || c.policy.TopologyKey != "" && waiting.Node.Labels[nodetest.ZoneLabel] != d.Node.Labels[nodetest.ZoneLabel] {
						continue
					}
					if overtaken[waiting.Node.Name] == nil {
						overtaken[waiting.Node.Name] = map[string]int{}
					}
					overtaken[waiting.Node.Name][d.Node.Name]++
					require.Equal(t, 1, overtaken[waiting.Node.Name][d.Node.Name], "how often %s overtook %s", d.Node.Name, waiting.Node.Name)
				}
			}
		}
		for _, name := range names {
			require.Positive(t, reboots[name], "reboots of Node %s, of all %v", name, reboots)
		}
	})
}

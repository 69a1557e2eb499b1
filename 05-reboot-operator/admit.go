package reboot

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/policy"
	"example.com/controllers/reboot/protocol"
)

// admit admits as many Nodes as there are free slots. again is the delay until the decision may change without an event; 0
// if it cannot.
func (c *Controller) admit(ctx context.Context) (again time.Duration, err error) {
	maps.DeleteFunc(c.refused, func(_ string, retry time.Time) bool { return !time.Now().Before(retry) })
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return 0, err
	}
	if again, any := c.decide(policy.State{Nodes: nodes}, func(*corev1.Node) {}); !any {
		return again, nil // without a request
	}
	// Read the ledger before the cache. The cache may be stale, but an admitted Node that it does not show yet is in the
	// ledger.
	ledger, err := protocol.ReadLedger(ctx, c.client, c.Namespace, c.Ledger)
	if err != nil {
		return 0, err
	}
	cacheVersion := c.nodes.Informer().GetStore().LastStoreSyncResourceVersion()
	if nodes, err = c.lister.List(labels.Everything()); err != nil {
		return 0, err
	}
	unfinished := ledger.Settle(nodes, cacheVersion)
	slots := ledger.Names()
	var admitted []*corev1.Node
	again, _ = c.decide(policy.State{Nodes: nodes, Slots: slots, Unfinished: unfinished, Pauses: ledger.Pauses}, func(node *corev1.Node) {
		ledger.Slots[node.Name] = node.ResourceVersion
		admitted = append(admitted, node)
	})
	if len(ledger.Slots) > len(slots) {
		if err := ledger.Save(ctx, c.client); err != nil {
			return 0, err
		}
	}
	var errs []error
	for _, node := range admitted {
		errs = append(errs, c.putOff(ctx, node, c.startDrain(ctx, node)))
	}
	for _, node := range unfinished {
		if !slices.Contains(admitted, node) {
			errs = append(errs, c.putOff(ctx, node, c.withdraw(ctx, node)))
		}
	}
	if len(c.refused) > 0 && (again == 0 || again > settleInterval) {
		again = settleInterval
	}
	return again, utilerrors.NewAggregate(errs)
}

// decide calls admit for each Node that may be admitted, and reports whether there is any. again is the delay until the
// decision may change without an event; 0 if it cannot.
func (c *Controller) decide(state policy.State, admit func(*corev1.Node)) (again time.Duration, any bool) {
	state.Now, state.Ledger, state.Refused = time.Now(), c.ledgerID(), c.refused
	state.Blockers, state.Agents = drain.Names(drain.Blockers(c.blocking())), c.running()
	for _, d := range policy.Decide(state, c.Policy) {
		switch {
		case d.Reason == policy.Admitted:
			admit(d.Node)
			any = true
		case d.Reason == policy.Blocked || d.Reason == policy.NoAgent: // the other reasons concern all Nodes, or another controller: see "kubectl reboot why"
			key := string(d.Reason) + d.Node.Annotations[protocol.LastAttemptAnnotation] // once for each attempt
			// With the same action, client-go would count the second reason as a repetition of the first, whose note it keeps.
			action := map[policy.Reason]string{policy.Blocked: "Admit", policy.NoAgent: "FindAgent"}[d.Reason]
			c.tell(d.Node, corev1.EventTypeWarning, "RebootRefused", action, key, "Not rebooting now: %s", d.Message)
		}
		if wait := d.Again.Sub(state.Now); !d.Again.IsZero() && (again == 0 || wait < again) {
			again = max(wait, time.Second)
		}
	}
	return again, any
}

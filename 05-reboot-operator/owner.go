package reboot

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"example.com/controllers/reboot/protocol"
)

// ledgerID is what the controller writes on the Nodes that it admits.
func (c *Controller) ledgerID() string { return protocol.LedgerID(c.Namespace, c.Ledger) }

// owns reports whether it is this controller's turn to act on a Node if it has been admitted: there may be several, each with a
// ledger of its own. Who has admitted a Node is not recorded if its version did not do so yet. Then the Node belongs to the
// controller that has entered it in its ledger, or whose selector selects it.
func (c *Controller) owns(node *corev1.Node) bool {
	if by, recorded := node.Annotations[protocol.AdmittedByAnnotation]; recorded {
		return by == c.ledgerID()
	}
	return c.Selector.Matches(labels.Set(node.Labels)) || c.isEntered(node.Name)
}

// counts reports whether a Node is in the metrics: those that are selected, unless another controller has admitted them, and
// those that this one has admitted.
func (c *Controller) counts(node *corev1.Node) bool {
	if !protocol.PhaseOf(node).HoldsSlot() {
		return c.Selector.Matches(labels.Set(node.Labels))
	}
	return c.owns(node)
}

// isEntered reports whether the ledger, as far as the cache shows, has an entry of a Node.
func (c *Controller) isEntered(node string) bool {
	configMap, err := c.ledgers.Get(c.Ledger)
	return err == nil && protocol.SettingsOf(configMap).Entered(node)
}

// tellAdmittedElsewhere says that another controller has admitted a Node. If the Node is one of ours, too, then two controllers
// decide about it, and neither of their limits holds for both.
func (c *Controller) tellAdmittedElsewhere(ctx context.Context, node *corev1.Node) {
	by := node.Annotations[protocol.AdmittedByAnnotation]
	if !protocol.PhaseOf(node).HoldsSlot() || by == "" {
		return
	}
	selected := c.Selector.Matches(labels.Set(node.Labels))
	key := by + node.Annotations[protocol.AdmittedAnnotation]
	if !selected {
		if c.told.isNew(node.Name, "admitted elsewhere, and not selected", key) {
			klog.FromContext(ctx).Info("Admitted by another controller, leaving it alone", "ledger", by)
		}
		return
	}
	c.tell(node, corev1.EventTypeWarning, "AdmittedElsewhere", "Admit", key,
		"The controller of ledger %s has admitted this Node, which --node-selector of the controller of ledger %s selects, too; let each Node be selected by one controller; if that one is gone, \"kubectl reboot why\" says how to hand the Node over", by, c.ledgerID())
}

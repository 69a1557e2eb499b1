package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
)

// The keys in the data of the ledger.
const (
	PausedKey = "paused" // "true" while no Node is admitted; so is each key that begins with "paused.", whose value says why
	SlotsKey  = "slots"  // a JSON object
)

// Ledger is a ConfigMap that records every slot that is taken. A Node is entered before it is admitted.
//
// The resourceVersion of a Node protects only that Node: two controllers that admit different Nodes, one of them with a
// stale cache or an expired Lease, would not notice each other. But every admission also changes the ledger, so one of the
// two gets a Conflict, reads the ledger again, and finds the other's entry.
type Ledger struct {
	// ID is the ledger's namespace and name, as in an [AdmittedByAnnotation].
	ID        string
	configMap *corev1.ConfigMap
	Pauses    []Pause // why no Node is admitted
	// slots holds, by the name of each Node that was entered, the resourceVersion that the Node had then. Never nil.
	Slots map[string]string
}

// ReadLedger reads the ledger from the API server, and creates it if it does not exist.
func ReadLedger(ctx context.Context, client kubernetes.Interface, namespace, name string) (*Ledger, error) {
	configMaps := client.CoreV1().ConfigMaps(namespace)
	configMap, err := configMaps.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		configMap, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("read the ledger, ConfigMap %s/%s: %w", namespace, name, err)
	}
	l := &Ledger{ID: LedgerID(namespace, name), configMap: configMap, Pauses: PausesOf(configMap), Slots: map[string]string{}}
	text, ok := configMap.Data[SlotsKey]
	if !ok {
		return l, nil
	}
	if err := parseSlots(text, l.Slots); err != nil {
		return nil, fmt.Errorf("read the ledger, ConfigMap %s/%s: key %q: %w; no Node is admitted until the key is corrected, "+
			"or removed while no Node is being rebooted", namespace, name, SlotsKey, err)
	}
	return l, nil
}

// parseSlots adds the entries in a ledger's data to slots. An entry without a valid resourceVersion is an error: its slot
// would never be given back.
func parseSlots(text string, slots map[string]string) error {
	var entries map[string]string
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return err
	}
	for name, entered := range entries {
		if _, err := resourceversion.CompareResourceVersion(entered, entered); err != nil {
			return fmt.Errorf("the entry of Node %s: %q is not a resourceVersion", name, entered)
		}
		slots[name] = entered
	}
	return nil
}

// Settle removes the entries of Nodes that no longer hold their slots, and returns the Nodes that were entered but not
// admitted. It is given the Nodes in the cache, and the resourceVersion up to which the cache is complete.
//
// While a Node has the resourceVersion of its entry, the controller that made the entry may still admit it, however late.
// So the entry stays until the cache shows that the Node has changed since, or is gone. A cache that is older than the
// entry proves nothing. A Node that another controller has admitted in the meantime holds no slot of this ledger.
func (l *Ledger) Settle(nodes []*corev1.Node, cacheVersion string) (unfinished []*corev1.Node) {
	byName := map[string]*corev1.Node{}
	for _, node := range nodes {
		byName[node.Name] = node
	}
	maps.DeleteFunc(l.Slots, func(name, entered string) bool {
		node, ok := byName[name]
		if !ok {
			return isNewer(cacheVersion, entered) // otherwise the Node may be too new for the cache
		}
		if node.ResourceVersion == entered && PhaseOf(node) == Needed {
			unfinished = append(unfinished, node)
			return false
		}
		return isNewer(node.ResourceVersion, entered) && (!PhaseOf(node).HoldsSlot() || !MayBelongTo(node, l.ID))
	})
	return unfinished
}

// LedgerID returns the value of an [AdmittedByAnnotation].
func LedgerID(namespace, name string) string { return namespace + "/" + name }

// MayBelongTo reports whether the controller with a ledger may have admitted a Node. Who has, is not recorded if its version
// did not do so yet.
func MayBelongTo(node *corev1.Node, ledger string) bool {
	by, recorded := node.Annotations[AdmittedByAnnotation]
	return !recorded || by == ledger
}

// isNewer reports whether one resourceVersion is known to be newer than another.
func isNewer(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order > 0
}

// Names returns the names of the Nodes in the ledger.
func (l *Ledger) Names() map[string]bool {
	names := map[string]bool{}
	for name := range l.Slots {
		names[name] = true
	}
	return names
}

// Save writes the ledger. The error is a Conflict if the ledger has been changed since it was read.
func (l *Ledger) Save(ctx context.Context, client kubernetes.Interface) error {
	text, err := json.Marshal(l.Slots)
	if err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	configMap := l.configMap.DeepCopy()
	if configMap.Data == nil {
		configMap.Data = map[string]string{}
	}
	configMap.Data[SlotsKey] = string(text)
	if l.configMap, err = client.CoreV1().ConfigMaps(configMap.Namespace).Update(ctx, configMap, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the ledger, ConfigMap %s/%s: %w", configMap.Namespace, configMap.Name, err)
	}
	return nil
}

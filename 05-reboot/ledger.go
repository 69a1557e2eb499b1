package reboot

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
	pausedKey = "paused" // "true" while no Node is to be admitted
	slotsKey  = "slots"
)

// ledger is a ConfigMap that holds every slot that has been given away. A Node is entered before it is admitted.
//
// The resourceVersion of a Node protects only that Node: two controllers that admit different Nodes, one of them with an
// old cache or an expired Lease, would not notice each other. All admissions change the ledger, so one of the two gets a
// Conflict, reads again, and finds the other's entry.
type ledger struct {
	configMap *corev1.ConfigMap
	paused    bool
	// slots holds, for each Node that was admitted, the resourceVersion that it had before.
	slots map[string]string
}

// readLedger reads the ledger from the API server, and creates it if it does not exist.
func readLedger(ctx context.Context, client kubernetes.Interface, namespace, name string) (*ledger, error) {
	configMaps := client.CoreV1().ConfigMaps(namespace)
	configMap, err := configMaps.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		configMap, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("read the ledger, ConfigMap %s/%s: %w", namespace, name, err)
	}
	l := &ledger{configMap: configMap, paused: isPaused(configMap), slots: map[string]string{}}
	if text, ok := configMap.Data[slotsKey]; ok {
		if err := json.Unmarshal([]byte(text), &l.slots); err != nil {
			return nil, fmt.Errorf("read the ledger, ConfigMap %s/%s: %s: %w", namespace, name, slotsKey, err)
		}
	}
	return l, nil
}

func isPaused(configMap *corev1.ConfigMap) bool { return configMap.Data[pausedKey] == "true" }

// settle compares the ledger with the cache of Nodes, whose resourceVersion is given. Entries of Nodes that have given
// their slots back are removed. It returns the Nodes that were entered, but not admitted afterwards.
//
// As long as a Node has the resourceVersion of its entry, whoever made the entry may still admit it, however late. So the
// entry stays until the Node has changed.
func (l *ledger) settle(nodes []*corev1.Node, cacheVersion string) (unfinished []*corev1.Node) {
	byName := map[string]*corev1.Node{}
	for _, node := range nodes {
		byName[node.Name] = node
	}
	maps.DeleteFunc(l.slots, func(name, entered string) bool {
		node, ok := byName[name]
		if !ok {
			return isNewer(cacheVersion, entered) // otherwise the cache may not know the Node yet
		}
		if node.ResourceVersion == entered && PhaseOf(node) == Needed {
			unfinished = append(unfinished, node)
			return false
		}
		return isNewer(node.ResourceVersion, entered) && !PhaseOf(node).holdsSlot()
	})
	return unfinished
}

// isNewer reports whether one resourceVersion of a Node is certainly newer than another.
func isNewer(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order > 0
}

// names returns the Nodes in the ledger.
func (l *ledger) names() map[string]bool {
	names := map[string]bool{}
	for name := range l.slots {
		names[name] = true
	}
	return names
}

// save writes the ledger. The error is a Conflict if anybody has written it since it was read.
func (l *ledger) save(ctx context.Context, client kubernetes.Interface) error {
	text, err := json.Marshal(l.slots)
	if err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	configMap := l.configMap.DeepCopy()
	if configMap.Data == nil {
		configMap.Data = map[string]string{}
	}
	configMap.Data[slotsKey] = string(text)
	if l.configMap, err = client.CoreV1().ConfigMaps(configMap.Namespace).Update(ctx, configMap, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the ledger, ConfigMap %s/%s: %w", configMap.Namespace, configMap.Name, err)
	}
	return nil
}

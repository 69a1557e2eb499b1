package protocol

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// flagsKey is the key in the data of the ledger under which the controller publishes its flags.
const flagsKey = "flags"

// Settings is what the ledger holds besides the slots.
type Settings struct {
	Namespace, Name string // of the ConfigMap
	Pauses          []Pause
	// Flags holds the flags of the controller that used the ledger last, by name; nil if none has published them.
	Flags map[string]string
	// Warning says what is wrong with the ledger, in a sentence; "" if nothing is.
	Warning string
	ledger  *Ledger
}

// SettingsOf reads a ledger.
func SettingsOf(configMap *corev1.ConfigMap) *Settings {
	s := &Settings{
		Namespace: configMap.Namespace, Name: configMap.Name, Pauses: PausesOf(configMap),
		ledger: &Ledger{ID: LedgerID(configMap.Namespace, configMap.Name), configMap: configMap, Slots: map[string]string{}},
	}
	if value, ok := configMap.Data[PausedKey]; ok {
		if _, err := strconv.ParseBool(value); err != nil {
			s.Warning = fmt.Sprintf("%s is %q, which is neither true nor false, and pauses reboots", PausedKey, value)
		}
	}
	if text, ok := configMap.Data[SlotsKey]; ok {
		if err := parseSlots(text, s.ledger.Slots); err != nil {
			s.ledger.Slots = map[string]string{}
			s.Warning = fmt.Sprintf("%s cannot be read, and the controller admits no Node: %v", SlotsKey, err)
		}
	}
	if text, ok := configMap.Data[flagsKey]; ok {
		if err := json.Unmarshal([]byte(text), &s.Flags); err != nil {
			s.Flags = nil
			s.Warning = fmt.Sprintf("%s cannot be read: %v", flagsKey, err)
		}
	}
	return s
}

// Used reports whether a controller has ever used the ledger.
func (s *Settings) Used() bool {
	_, flags := s.ledger.configMap.Data[flagsKey]
	_, slots := s.ledger.configMap.Data[SlotsKey]
	return flags || slots
}

// Slots names the Nodes that hold a slot. nodes are all Nodes, read after the ledger, and version is the resourceVersion of
// their list.
func (s *Settings) Slots(nodes []*corev1.Node, version string) map[string]bool {
	current := &Ledger{ID: s.ledger.ID, Slots: maps.Clone(s.ledger.Slots)}
	current.Settle(nodes, version)
	return current.Names()
}

// Entered reports whether the ledger has an entry of a Node.
func (s *Settings) Entered(node string) bool { _, ok := s.ledger.Slots[node]; return ok }

// SetPaused pauses all reboots, or ends that pause. It reports whether that changed anything, and whether it created the ledger.
func SetPaused(ctx context.Context, client kubernetes.Interface, namespace, name string, pause Pause, paused bool) (changed, created bool, err error) {
	var value *string
	if paused {
		value = new(cmp.Or(pause.Why, "true"))
	}
	return setKey(ctx, client, namespace, name, pause.key(), value)
}

// PublishFlags writes the flags of the controller into the ledger, if they differ from what is there. The plugin reads them.
func PublishFlags(ctx context.Context, client kubernetes.Interface, namespace, name string, flags map[string]string) error {
	text, err := json.Marshal(flags)
	if err != nil {
		return fmt.Errorf("write the flags into the ledger: %w", err)
	}
	_, _, err = setKey(ctx, client, namespace, name, flagsKey, new(string(text)))
	return err
}

// setKey sets one key in the data of the ledger, or removes it if the value is nil, and leaves the other keys alone. It creates
// a ledger that does not exist, unless there is nothing to set. Nothing is written if the key has the value.
func setKey(ctx context.Context, client kubernetes.Interface, namespace, name, key string, value *string) (changed, created bool, err error) {
	configMaps := client.CoreV1().ConfigMaps(namespace)
	exists := func(err error) bool { return apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) }
	err = retry.OnError(retry.DefaultBackoff, exists, func() error {
		current, err := configMaps.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && value == nil:
			return nil
		case apierrors.IsNotFound(err):
			_, err = configMaps.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{key: *value},
			}, metav1.CreateOptions{})
			changed, created = err == nil, err == nil
			return err
		case err != nil:
			return err
		}
		has, ok := current.Data[key]
		if ok && value != nil && has == *value || !ok && value == nil {
			return nil
		}
		patch, err := json.Marshal(map[string]any{"data": map[string]any{key: value}})
		if err != nil {
			return err
		}
		_, err = configMaps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		changed = err == nil
		return err
	})
	if err != nil {
		return false, false, fmt.Errorf("write %s into the ledger, ConfigMap %s/%s: %w", key, namespace, name, err)
	}
	return changed, created, nil
}

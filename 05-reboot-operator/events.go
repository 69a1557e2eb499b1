package reboot

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/protocol"
)

// tell writes an Event about a Node, unless the last one with this reason had the same key: an Event is repeated only when
// something has changed.
func (c *Controller) tell(node *corev1.Node, eventType, reason, action, key, format string, args ...any) {
	if !c.told.isNew(node.Name, reason, key) {
		return
	}
	if reason == "RebootTimeout" {
		c.metrics.failures.WithLabelValues(reason).Inc()
	}
	c.recorder.Eventf(node, nil, eventType, reason, action, format, args...)
}

// tellWaiting writes Events about what a drain waits for until somebody does something: at most five for each attempt at a time.
//
// An Event that differs from an earlier one in nothing but its note is counted as the same, and keeps the note of the first. So
// that "kubectl describe node" shows the reason of today, each Event names its Pod as the related object, and the action is that
// of its kind.
func (c *Controller) tellWaiting(node *corev1.Node, waits []drain.Wait) {
	const most = 5
	attempt := node.Annotations[protocol.AdmittedAnnotation]
	for _, wait := range waits[:min(most, len(waits))] {
		if !wait.Refused {
			continue
		}
		pod, related := "", runtime.Object(nil)
		if wait.Pod != nil {
			pod, related = wait.Pod.Namespace+"/"+wait.Pod.Name, wait.Pod
		}
		if c.told.isNew(node.Name, "DrainWaiting "+pod, attempt+wait.Why) {
			c.recorder.Eventf(node, related, corev1.EventTypeWarning, "DrainWaiting", wait.Action, "%s", wait.Why)
		}
	}
}

// told remembers which Events have been written, so that they are not repeated.
type told struct {
	mu   sync.Mutex
	last map[string]map[string]string // key of the last Event, by Node and reason
}

func newTold() *told { return &told{last: map[string]map[string]string{}} }

// isNew reports whether the key differs from the last one for the Node and the reason, and remembers it.
func (t *told) isNew(node, reason, key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.last[node][reason]; ok && last == key {
		return false
	}
	if t.last[node] == nil {
		t.last[node] = map[string]string{}
	}
	t.last[node][reason] = key
	return true
}

// forget removes the keys of a Node.
func (t *told) forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, node)
}

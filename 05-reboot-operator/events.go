package reboot

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"example.com/controllers/reboot/drain"
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

// blocking returns, by the name of each Node, a running Pod that blocks its reboot.
func (c *Controller) blocking() map[string]string {
	if c.blockers == nil {
		return nil
	}
	pods, err := c.blockers.List(labels.Everything())
	if err != nil { // never: the lister reads a cache
		return nil
	}
	return drain.Blockers(pods)
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

// forget removes the keys of a Node that no longer exists.
func (t *told) forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, node)
}

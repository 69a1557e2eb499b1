package crd

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// ownWrites is a read-your-own-writes guard. Until the watch delivers a write of the controller, the cache still has the
// object as it was before, and a reconcile that acts on that does the same thing twice.
type ownWrites struct {
	mu   sync.Mutex
	last map[cache.ObjectName]string // resourceVersion of the last write, "" if it failed; removed once the store has it
}

func newOwnWrites() *ownWrites { return &ownWrites{last: map[cache.ObjectName]string{}} }

// wroteAt records a write. resourceVersion is that of the API server's response.
func (w *ownWrites) wroteAt(key cache.ObjectName, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[key] = resourceVersion
}

// failed records a write that failed. Its outcome is unknown: if only the response was lost, the API server has stored it.
func (w *ownWrites) failed(key cache.ObjectName) { w.wroteAt(key, "") }

// takeFailed reports whether the last write failed, and forgets it.
func (w *ownWrites) takeFailed(key cache.ObjectName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	version, ok := w.last[key]
	if !ok || version != "" {
		return false
	}
	delete(w.last, key)
	return true
}

// ensureReady reports whether the controller's last write to the object has reached the store. The resourceVersions of one
// resource are ordered, and a store at one of them has seen all earlier ones. If the store reports none, as with a fake
// clientset or with client-go's AtomicFIFO feature off, there is nothing to compare and ensureReady returns true.
func (w *ownWrites) ensureReady(store interface{ LastStoreSyncResourceVersion() string }, key cache.ObjectName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrote, ok := w.last[key]
	if !ok || wrote == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(store.LastStoreSyncResourceVersion(), wrote)
	if err == nil && order < 0 {
		return false
	}
	delete(w.last, key)
	return true
}

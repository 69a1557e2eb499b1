package secretsync

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// ownWrites is a read-your-own-writes guard, with the names that Kubernetes' own has. Until the watch delivers a write of the controller, the cache still has the copy
// as it was before, and a reconcile that acts on that writes twice.
type ownWrites struct {
	mu   sync.Mutex
	last map[cache.ObjectName]ownWrite
}

// ownWrite is the controller's last write of a copy. One of version and deleted is set.
type ownWrite struct {
	version string    // resourceVersion of what was written
	deleted types.UID // UID of what was deleted; the API server does not return the resourceVersion of a deletion
}

func newOwnWrites() *ownWrites { return &ownWrites{last: map[cache.ObjectName]ownWrite{}} }

// wroteAt records a write.
func (w *ownWrites) wroteAt(key cache.ObjectName, write ownWrite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[key] = write
}

// ensureReady reports whether the last write at the key has reached the cache, in which cached is now what exists at the key, or
// nil. The resourceVersions of one resource are ordered, and a cache at one of them has seen all earlier ones. If the cache
// reports none, as with a fake clientset or with client-go's AtomicFIFO feature off, there is nothing to compare.
func (w *ownWrites) ensureReady(store interface{ LastStoreSyncResourceVersion() string }, key cache.ObjectName, cached *metav1.PartialObjectMetadata) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	write, ok := w.last[key]
	switch {
	case !ok:
		return true
	case write.deleted != "":
		if cached != nil && cached.UID == write.deleted && cached.DeletionTimestamp == nil {
			return false
		}
	default:
		order, err := resourceversion.CompareResourceVersion(store.LastStoreSyncResourceVersion(), write.version)
		if err == nil && order < 0 {
			return false
		}
	}
	delete(w.last, key)
	return true
}

package crd

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// ownWrites remembers what we wrote and our cache may not have seen. Between our write and the moment when
// the watch brings it, the cache still shows the object as it was; who acts on that does the same again.
type ownWrites struct {
	mu   sync.Mutex
	last map[cache.ObjectName]string // resourceVersion of our last write, if no cache was seen to have it
}

func newOwnWrites() *ownWrites { return &ownWrites{last: map[cache.ObjectName]string{}} }

// wrote is to be told of each write, and of the resourceVersion that the API server answered it with.
func (w *ownWrites) wrote(key cache.ObjectName, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[key] = resourceVersion
}

// seenBy says whether what we wrote to the object has reached the store. Resource versions of one
// resource can be compared, and a store that has seen one has seen all before it.
func (w *ownWrites) seenBy(store interface{ LastStoreSyncResourceVersion() string }, key cache.ObjectName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrote, ok := w.last[key]
	if !ok {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(store.LastStoreSyncResourceVersion(), wrote)
	if err == nil && order < 0 {
		return false
	}
	delete(w.last, key) // or they cannot be compared, as with a fake API server
	return true
}

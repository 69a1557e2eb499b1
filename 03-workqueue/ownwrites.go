package workqueue

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// ownWrites lets a controller read its own writes. After a write, the cache shows the old object until the watch
// delivers the new one; a reconcile that reads the old object would write again.
//
// Kubernetes' own controllers use pkg/controller/util/consistency for this, whose names these are.
type ownWrites struct {
	mu sync.Mutex
	// last holds the resourceVersion of our last write to an object. An entry is removed once the cache has
	// caught up with it.
	last map[cache.ObjectName]string
}

func newOwnWrites() *ownWrites { return &ownWrites{last: map[cache.ObjectName]string{}} }

// versionedStore is an informer's store, which knows the latest resourceVersion it has seen.
type versionedStore interface {
	LastStoreSyncResourceVersion() string
	GetByKey(key string) (object any, exists bool, err error)
}

// wroteAt records a successful write and the resourceVersion that the API server returned for it.
func (w *ownWrites) wroteAt(key cache.ObjectName, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[key] = resourceVersion
}

// ensureReady reports whether the store includes our last write to the object. The resourceVersions of one resource
// are ordered, and a store that has seen one has seen all earlier ones. A store that cannot tell its resourceVersion is
// asked for that of the object. If that cannot be compared either, the store counts as up to date, because a key that
// waited for it would wait forever; see reportsResourceVersion.
func (w *ownWrites) ensureReady(store versionedStore, key cache.ObjectName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrote, ok := w.last[key]
	if !ok {
		return true
	}
	seen := store.LastStoreSyncResourceVersion()
	if seen == "" {
		seen = versionOf(store, key)
	}
	order, err := resourceversion.CompareResourceVersion(seen, wrote)
	if err == nil && order < 0 {
		return false
	}
	delete(w.last, key)
	return true
}

// versionOf returns the resourceVersion of an object in a store; "" if it has none, or is not there.
func versionOf(store versionedStore, key cache.ObjectName) string {
	object, _, _ := store.GetByKey(key.String())
	if object, ok := object.(metav1.Object); ok {
		return object.GetResourceVersion()
	}
	return ""
}

// reportsResourceVersion reports whether a store that has synced can tell its resourceVersion. With client-go's
// feature gate AtomicFIFO off it cannot. Nor can it for a while after an event whose object has none, because a transform
// has dropped it.
func reportsResourceVersion(store versionedStore) bool {
	return store.LastStoreSyncResourceVersion() != ""
}

// podDeleter returns a function that deletes a Pod and returns the resourceVersion of the deletion. The typed client
// has no such method: its Delete discards the Pod in the API server's response.
func podDeleter(client kubernetes.Interface) func(context.Context, *corev1.Pod) (string, error) {
	return func(ctx context.Context, pod *corev1.Pod) (resourceVersion string, err error) {
		deleted := &corev1.Pod{}
		err = client.CoreV1().RESTClient().Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
			// With the UID as a precondition, a new Pod of the same name is never deleted in place of this one.
			Body(&metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}).
			Do(ctx).Into(deleted)
		return deleted.ResourceVersion, err
	}
}

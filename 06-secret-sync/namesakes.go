package secretsync

import (
	"context"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// namesakes watches the metadata of Secrets that have the name of a copy but not our label: Secrets of others, and copies
// whose label somebody has removed. The cache of copies has neither. namesakes watches a name only after a create has failed
// because such a Secret exists, and until there is none. No other Secrets of the cluster are ever read.
type namesakes struct {
	client  metadata.Interface
	scope   Scope
	enqueue func(cache.ObjectName) // called for each namesake that is added, updated or deleted
	ended   func(name string)      // called when the watch of a name has ended; its last events may not have been seen

	mu      sync.Mutex
	ctx     context.Context // of all watches
	watches map[string]*namesakeWatch
	running sync.WaitGroup
}

type namesakeWatch struct {
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc
	found    atomic.Bool // whether a Secret has ever been in its store
}

func newNamesakes(client metadata.Interface, scope Scope, enqueue func(cache.ObjectName), ended func(name string)) *namesakes {
	return &namesakes{client: client, scope: scope, enqueue: enqueue, ended: ended, watches: map[string]*namesakeWatch{}}
}

// start allows watches, until ctx is cancelled.
func (n *namesakes) start(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ctx = ctx
}

// get returns the namesake at the key, nil if none is known; and whether that is certain. It is not certain while a watch
// of the name starts.
func (n *namesakes) get(key cache.ObjectName) (namesake *metav1.PartialObjectMetadata, certain bool) {
	n.mu.Lock() // so that a watch that shows a namesake is not ended as one that has found none
	defer n.mu.Unlock()
	watch := n.watches[key.Name]
	if watch == nil {
		return nil, true
	}
	return metadataAt(watch.informer.GetStore(), key.String()), watch.informer.HasSynced()
}

// watch starts the watch of a name, unless there is one.
func (n *namesakes) watch(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watches[name] != nil || n.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(n.ctx)
	informer := newMetadataInformer(n.client, secretsResource, func(list *metav1.ListOptions) { n.scope.selectNamesakes(list, name) })
	watch := &namesakeWatch{informer: informer, cancel: cancel}
	enqueue := func(object any) {
		if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
			n.enqueue(key)
		}
	}
	// Neither fails before the informer runs.
	_ = informer.SetTransform(func(object any) (any, error) {
		watch.found.Store(true)
		return stripCopy(object)
	})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) },
		DeleteFunc: func(object any) {
			enqueue(object)
			// The store is ahead of the handler. An informer that stops drops the events that its handler has not seen.
			if len(informer.GetStore().ListKeys()) == 0 {
				n.stop(name)
				n.ended(name)
			}
		},
	})
	n.watches[name] = watch
	n.running.Go(func() { informer.RunWithContext(ctx) })
	n.running.Go(func() {
		if cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
			n.stopUnused(name, watch)
		}
	})
}

// stopUnused ends a watch if it has synced and found nothing: the namesake has gone, or it was a copy of ours that the cache of
// copies did not have yet. The key whose create failed is retried with backoff anyway.
func (n *namesakes) stopUnused(name string, watch *namesakeWatch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watches[name] == watch && !watch.found.Load() {
		watch.cancel()
		delete(n.watches, name)
	}
}

// release ends the watch of a name that no source has any more, unless there is still one of our copies to delete.
func (n *namesakes) release(name string) {
	n.mu.Lock()
	watch := n.watches[name]
	n.mu.Unlock()
	if watch == nil || !watch.informer.HasSynced() { // whoever waits for it to sync calls release afterwards
		return
	}
	for _, object := range watch.informer.GetStore().List() {
		namesake := object.(*metav1.PartialObjectMetadata)
		if (Input{Scope: n.scope, Key: cache.MetaObjectToName(namesake), Copy: namesake}).isOurs() {
			return
		}
	}
	n.stop(name)
	n.ended(name) // by now, there may be a source again
}

// stop ends the watch of a name.
func (n *namesakes) stop(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if watch := n.watches[name]; watch != nil {
		watch.cancel()
		delete(n.watches, name)
	}
}

// wait returns when no watch is left, after the context of start is cancelled.
func (n *namesakes) wait() { n.running.Wait() }

// selectNamesakes limits a request to the Secrets with a name that are not labelled as our copies, except for the source.
func (s Scope) selectNamesakes(list *metav1.ListOptions, name string) {
	list.LabelSelector = CopyLabel + "!=" + s.SourceNamespace
	list.FieldSelector = fields.AndSelectors(
		fields.OneTermEqualSelector(metav1.ObjectNameField, name),
		fields.OneTermNotEqualSelector("metadata.namespace", s.SourceNamespace)).String()
}

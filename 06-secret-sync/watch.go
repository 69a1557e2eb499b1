package secretsync

import (
	"maps"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

var (
	secretsResource    = corev1.SchemeGroupVersion.WithResource("secrets")
	namespacesResource = corev1.SchemeGroupVersion.WithResource("namespaces")
)

// Indexes of the caches.
const (
	byCopyName = "copyName" // sources by the name of their copies
	bySource   = "source"   // copies by the name of their source
)

// newMetadataInformer returns an informer that gets and caches nothing of its objects but their metadata.
func newMetadataInformer(client metadata.Interface, resource schema.GroupVersionResource, tweak metadatainformer.TweakListOptionsFunc) cache.SharedIndexInformer {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return metadatainformer.NewFilteredMetadataInformer(client, resource, metav1.NamespaceAll, 0, indexers, tweak).Informer()
}

// addHandlers makes the informers add the keys of all copies that an event may affect, whatever kind of event it is.
func (c *Controller) addHandlers(logger klog.Logger) error {
	for informer, strip := range map[cache.SharedIndexInformer]cache.TransformFunc{
		c.sources: stripSource, c.namespaces: stripNamespace, c.copies: stripCopy,
	} {
		// A transform is called for each object that a list or a watch delivers, whether a copy depends on it or not.
		if err := informer.SetTransform(func(object any) (any, error) {
			c.lastEvent.Store(new(time.Now()))
			return strip(object)
		}); err != nil {
			return err
		}
	}
	if err := c.sources.AddIndexers(cache.Indexers{byCopyName: func(object any) ([]string, error) {
		return []string{copyName(object.(*corev1.Secret))}, nil
	}}); err != nil {
		return err
	}
	if err := c.copies.AddIndexers(cache.Indexers{bySource: func(object any) ([]string, error) {
		return []string{object.(*metav1.PartialObjectMetadata).Annotations[SourceAnnotation]}, nil
	}}); err != nil {
		return err
	}
	_, err := c.sources.AddTypedEventHandler(coreinformers.SecretHandlerFuncs{
		AddFunc: func(secret *corev1.Secret) { c.enqueueSource(secret.Name, secret) },
		UpdateFunc: func(old, secret *corev1.Secret) {
			if old.ResourceVersion != secret.ResourceVersion { // when the informer lists again, every source comes as an update
				c.enqueueSource(secret.Name, old, secret)
			}
		},
		DeleteFunc: c.enqueueDeletedSource,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	_, err = c.namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(namespace any) {
			c.retarget(nil, namespace.(*metav1.PartialObjectMetadata))
			c.enqueueNamespace(namespace)
		},
		UpdateFunc: func(old, namespace any) {
			a, b := old.(*metav1.PartialObjectMetadata), namespace.(*metav1.PartialObjectMetadata)
			if a.UID != b.UID || !maps.Equal(a.Labels, b.Labels) || !a.DeletionTimestamp.Equal(b.DeletionTimestamp) {
				c.retarget(a, b)
				c.enqueueNamespace(namespace)
			}
		},
		DeleteFunc: func(namespace any) {
			last, _ := namespace.(*metav1.PartialObjectMetadata) // nil if the watch has missed the deletion
			c.retarget(last, nil)
			c.enqueueNamespace(namespace)
		},
	})
	if err != nil {
		return err
	}
	enqueue := func(object any) {
		if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
			c.enqueue(key)
		}
	}
	_, err = c.copies.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }, DeleteFunc: enqueue,
	})
	return err
}

// enqueue adds a copy to the queue.
func (c *Controller) enqueue(key cache.ObjectName) {
	c.pending.start(key, time.Now())
	c.queue.Add(key)
}

// enqueueSource adds all copies of a source, those that exist and those that should. versions are the versions of the source
// that are known, or nil; in each, its copies may have another name.
func (c *Controller) enqueueSource(name string, versions ...*corev1.Secret) {
	copies, _ := c.copies.GetIndexer().ByIndex(bySource, name) // the index exists
	for _, one := range copies {
		c.enqueue(cache.MetaObjectToName(one.(metav1.Object)))
	}
	names := map[string]bool{}
	for _, secret := range versions {
		if secret != nil {
			names[copyName(secret)] = true
		}
	}
	for name := range names {
		c.enqueueName(name)
	}
}

// enqueueName adds the copies of a name in all namespaces.
func (c *Controller) enqueueName(name string) {
	for _, object := range c.namespaces.GetStore().List() {
		if namespace := object.(*metav1.PartialObjectMetadata); c.selects(namespace) {
			c.enqueue(cache.NewObjectName(namespace.Name, name))
		}
	}
}

// enqueueDeletedSource adds all copies that the deletion of a source affects. If the informer missed it, the version that it has
// may be old or missing, and so may be the name of the copies. Another source may get the name now, so those of all are added.
func (c *Controller) enqueueDeletedSource(source coreinformers.DeletedSecret) {
	name := source.GetObjectName().Name
	c.parsed.Delete(name)
	c.outcomes.forget(name)
	c.targets.forget(name)
	versions := []*corev1.Secret{source.OptionalObj}
	if source.FinalStateUnknown != nil {
		for _, object := range c.sources.GetStore().List() {
			versions = append(versions, object.(*corev1.Secret))
		}
	}
	c.enqueueSource(name, versions...)
}

// enqueueNamespace adds all copies in a namespace, those that exist and those that should.
func (c *Controller) enqueueNamespace(object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return
	}
	copies, _ := c.copies.GetIndexer().ByIndex(cache.NamespaceIndex, name.Name) // the index exists
	for _, one := range copies {
		c.enqueue(cache.MetaObjectToName(one.(metav1.Object)))
	}
	for _, copyName := range c.sources.GetIndexer().ListIndexFuncValues(byCopyName) {
		c.enqueue(cache.NewObjectName(name.Name, copyName))
	}
}

// namespace returns a namespace; nil if there is none.
func (c *Controller) namespace(name string) *metav1.PartialObjectMetadata {
	return metadataAt(c.namespaces.GetStore(), name)
}

// metadataAt returns an object of a cache; nil if there is none.
func metadataAt(store cache.Store, key string) *metav1.PartialObjectMetadata {
	object, exists, err := store.GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	return object.(*metav1.PartialObjectMetadata)
}

// sourcesOf returns the sources whose copies have a name, and the one that a copy names.
func (c *Controller) sourcesOf(name string, current *metav1.PartialObjectMetadata) []*Source {
	objects, _ := c.sources.GetIndexer().ByIndex(byCopyName, name) // the index exists
	var sources []*Source
	seen := map[string]bool{}
	add := func(secret *corev1.Secret) {
		if !seen[secret.Name] && secret.DeletionTimestamp == nil { // with somebody's finalizer, a source that is being deleted may stay for long
			seen[secret.Name] = true
			sources = append(sources, c.located(c.parse(secret)))
		}
	}
	for _, object := range objects {
		add(object.(*corev1.Secret))
	}
	if current != nil && current.Annotations[SourceAnnotation] != "" {
		object, exists, _ := c.sources.GetStore().GetByKey(c.SourceNamespace + "/" + current.Annotations[SourceAnnotation])
		if exists {
			add(object.(*corev1.Secret))
		}
	}
	return sources
}

// parse returns what a cached Secret asks for. It hashes the data of each version once, and not for each copy.
func (c *Controller) parse(secret *corev1.Secret) *Source {
	if parsed, ok := c.parsed.Load(secret.Name); ok && parsed.(*Source).secret == secret {
		return parsed.(*Source)
	}
	source := ParseSource(secret)
	c.parsed.Store(secret.Name, source)
	return source
}

// stripSource removes what is not copied from a source before it is cached. The annotation of kubectl apply has the data.
func stripSource(object any) (any, error) {
	if secret, ok := object.(*corev1.Secret); ok {
		secret.ManagedFields, secret.OwnerReferences = nil, nil
		delete(secret.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return object, nil
}

// stripNamespace removes what the controller does not read from a namespace before it is cached.
func stripNamespace(object any) (any, error) {
	if namespace, ok := object.(*metav1.PartialObjectMetadata); ok {
		namespace.ManagedFields, namespace.Annotations, namespace.OwnerReferences, namespace.Finalizers = nil, nil, nil, nil
		namespace.Labels = shared(namespace.Labels)
	}
	return object, nil
}

// stripCopy shares what the copies of a source have in common, so that ten thousand of them have it once. An update writes
// labels, annotations, owner references and finalizers of others back, so the cache keeps them, but for kubectl's annotation
// with the data.
func stripCopy(object any) (any, error) {
	if secret, ok := object.(*metav1.PartialObjectMetadata); ok {
		delete(secret.Annotations, corev1.LastAppliedConfigAnnotation)
		secret.Labels, secret.Annotations = shared(secret.Labels), shared(secret.Annotations)
		for i := range secret.ManagedFields {
			secret.ManagedFields[i].Manager = unique.Make(secret.ManagedFields[i].Manager).Value()
		}
	}
	return object, nil
}

// shared returns a map whose keys and values take no memory of their own if other objects have equal ones.
func shared(values map[string]string) map[string]string {
	if len(values) == 0 {
		return nil
	}
	all := make(map[string]string, len(values))
	for key, value := range values {
		all[unique.Make(key).Value()] = unique.Make(value).Value()
	}
	return all
}

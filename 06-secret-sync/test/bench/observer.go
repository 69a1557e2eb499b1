package main

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// revisionKey is the key of each Secret's data whose value says which version of the source it holds.
const revisionKey = "revision"

// observer follows all copies with an informer of its own. What is in the source namespace is none.
type observer struct {
	mu        sync.Mutex
	revisions map[string]string // of each copy, by namespace and name
	counts    map[string]int    // of copies, by revision
}

// watch follows the Secrets that match the selector until ctx is cancelled. stop waits for the end of the informer.
func (o *observer) watch(ctx context.Context, client kubernetes.Interface, selector string) (stop func(), err error) {
	o.revisions, o.counts = map[string]string{}, map[string]int{}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = selector }),
		informers.WithTransform(func(object any) (any, error) {
			if secret, ok := object.(*corev1.Secret); ok {
				object = &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, ResourceVersion: secret.ResourceVersion},
					Data:       map[string][]byte{revisionKey: secret.Data[revisionKey]},
				}
			}
			return object, nil
		}))
	if _, err := factory.Core().V1().Secrets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.set(object.(*corev1.Secret)) },
		UpdateFunc: func(_, object any) { o.set(object.(*corev1.Secret)) },
		DeleteFunc: o.remove,
	}); err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	return factory.Shutdown, factory.WaitForCacheSyncWithContext(ctx).AsError()
}

func (o *observer) set(secret *corev1.Secret) {
	if secret.Namespace == namespace {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	key, revision := secret.Namespace+"/"+secret.Name, string(secret.Data[revisionKey])
	if before, known := o.revisions[key]; known {
		o.counts[before]--
	}
	o.revisions[key] = revision
	o.counts[revision]++
}

func (o *observer) remove(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, known := o.revisions[key]; known {
		o.counts[before]--
		delete(o.revisions, key)
	}
}

// count returns how many copies there are, and how many of them have a revision.
func (o *observer) count(revision string) (all, current int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.revisions), o.counts[revision]
}

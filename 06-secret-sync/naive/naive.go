// Package naive is a secret sync as a talk would show it, in two stages: one copies a Secret when it changes, the other
// copies all Secrets whenever anything changes. The lesson's page shows what they lose, and what they destroy. Do not run
// them on a cluster that matters.
package naive

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// mark is the annotation of the Secrets to copy, and of the namespaces to copy them to.
const mark = "example.com/secret-sync"

// Syncer copies the marked Secrets of a namespace to all marked namespaces.
type Syncer struct {
	client     kubernetes.Interface
	source     string // namespace
	factory    informers.SharedInformerFactory
	secrets    listers.SecretLister
	namespaces listers.NamespaceLister
}

// New returns a Syncer whose caches have synced.
func New(ctx context.Context, client kubernetes.Interface, source string) *Syncer {
	factory := informers.NewSharedInformerFactory(client, 0)
	s := &Syncer{client, source, factory, factory.Core().V1().Secrets().Lister(), factory.Core().V1().Namespaces().Lister()}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	klog.Info("Caches synced")
	return s
}

// RunOnEvents copies a Secret when an event says that it has changed, and deletes its copies when it has been deleted.
func (s *Syncer) RunOnEvents(ctx context.Context) error {
	copyToAll := func(secret *corev1.Secret) {
		if secret.Namespace == s.source && isMarked(secret) {
			for _, namespace := range s.targets() {
				s.copy(ctx, secret, namespace)
			}
		}
	}
	_, err := s.factory.Core().V1().Secrets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { copyToAll(obj.(*corev1.Secret)) },
		UpdateFunc: func(_, obj any) { copyToAll(obj.(*corev1.Secret)) },
		DeleteFunc: func(obj any) {
			if secret, ok := obj.(*corev1.Secret); ok && secret.Namespace == s.source && isMarked(secret) {
				for _, namespace := range s.targets() {
					s.delete(ctx, secret.Name, namespace)
				}
			}
		},
	})
	<-ctx.Done()
	return err
}

// RunSyncAll copies everything whenever anything changes.
func (s *Syncer) RunSyncAll(ctx context.Context) error {
	queue := workqueue.NewTyped[string]()
	enqueue := func(any) { queue.Add("all") } // one key: however many events there are, one pass follows
	handler := cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, _ any) { enqueue(nil) }, DeleteFunc: enqueue}
	for _, informer := range []cache.SharedIndexInformer{s.factory.Core().V1().Secrets().Informer(), s.factory.Core().V1().Namespaces().Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	for {
		key, _ := queue.Get()
		s.syncAll(ctx)
		queue.Done(key)
	}
}

func (s *Syncer) syncAll(ctx context.Context) {
	sources, names := []*corev1.Secret{}, sets.New[string]()
	for _, secret := range s.marked(s.source) {
		sources = append(sources, secret)
		names.Insert(secret.Name)
	}
	for _, namespace := range s.targets() {
		for _, secret := range sources {
			s.copy(ctx, secret, namespace)
		}
		for _, secret := range s.marked(namespace) { // a copy has the mark of its source
			if !names.Has(secret.Name) {
				s.delete(ctx, secret.Name, namespace)
			}
		}
	}
}

func (s *Syncer) copy(ctx context.Context, source *corev1.Secret, namespace string) {
	secret := source.DeepCopy() // objects in the cache must not be modified
	secret.Namespace, secret.UID, secret.ResourceVersion = namespace, "", ""
	_, err := s.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = s.client.CoreV1().Secrets(namespace).Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		klog.ErrorS(err, "Copy", "secret", secret.Name, "namespace", namespace)
	}
}

func (s *Syncer) delete(ctx context.Context, name, namespace string) {
	klog.InfoS("Deleting", "secret", name, "namespace", namespace)
	if err := s.client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		klog.ErrorS(err, "Delete", "secret", name, "namespace", namespace)
	}
}

// targets returns the names of the marked namespaces.
func (s *Syncer) targets() (names []string) {
	namespaces, _ := s.namespaces.List(labels.Everything())
	for _, namespace := range namespaces {
		if isMarked(namespace) && namespace.Name != s.source {
			names = append(names, namespace.Name)
		}
	}
	return names
}

// marked returns the marked Secrets in a namespace.
func (s *Syncer) marked(namespace string) (marked []*corev1.Secret) {
	secrets, _ := s.secrets.Secrets(namespace).List(labels.Everything())
	for _, secret := range secrets {
		if isMarked(secret) {
			marked = append(marked, secret)
		}
	}
	return marked
}

func isMarked(object metav1.Object) bool { return object.GetAnnotations()[mark] != "" }

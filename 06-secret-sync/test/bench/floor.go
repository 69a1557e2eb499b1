package main

import (
	"context"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// plainClient writes the Secrets that the controller would write, with the same metadata, each with one request. It reads
// nothing. Its client has the controller's account, so that the API server authenticates, authorizes and admits the requests
// of both in the same way.
type plainClient struct {
	client  kubernetes.Interface
	workers int
	bytes   int
}

// data returns what a Secret holds in a revision.
func data(revision string, bytes int) map[string][]byte {
	return map[string][]byte{revisionKey: []byte(revision), "payload": []byte(strings.Repeat("x", bytes))}
}

func (p plainClient) create(ctx context.Context, namespace, name, revision string) error {
	_, err := p.client.CoreV1().Secrets(namespace).Create(ctx, p.secret(namespace, name, revision), metav1.CreateOptions{})
	return err
}

func (p plainClient) update(ctx context.Context, namespace, name, revision string) error {
	_, err := p.client.CoreV1().Secrets(namespace).Update(ctx, p.secret(namespace, name, revision), metav1.UpdateOptions{})
	return err
}

func (p plainClient) delete(ctx context.Context, namespace, name, _ string) error {
	return p.client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (p plainClient) secret(namespace, name, revision string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: copyLabels(), Annotations: copyAnnotations(namespace, name, revision)},
		Data:       data(revision, p.bytes),
	}
}

// forAll calls write for each copy of a size, with as many workers as the client has.
func (p plainClient) forAll(ctx context.Context, s size, revision string, write func(_ context.Context, namespace, name, revision string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.workers)
	for source := range s.sources {
		for namespace := range s.namespaces {
			if ctx.Err() != nil {
				break
			}
			group.Go(func() error { return write(ctx, namespaceName(namespace), sourceName(source), revision) })
		}
	}
	return group.Wait()
}

// keepWatches lists and watches what the controller does, as it does, until stop is called: the shared Secrets of its
// namespace, and the metadata of all namespaces and of the copies. stop ends that.
func keepWatches(ctx context.Context, config *rest.Config) (stop func(), err error) {
	client, err := newClient(rest.CopyConfig(config))
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(config) // in protobuf, too
	if err != nil {
		return nil, err
	}
	selecting := func(selector string) func(*metav1.ListOptions) {
		return func(list *metav1.ListOptions) { list.LabelSelector = selector }
	}
	all := []cache.SharedIndexInformer{
		coreinformers.NewFilteredSecretInformer(client, namespace, 0, nil, selecting(sharedSelector())),
		metadatainformer.NewFilteredMetadataInformer(metadataClient, corev1.SchemeGroupVersion.WithResource("namespaces"), metav1.NamespaceAll, 0, nil, nil).Informer(),
		metadatainformer.NewFilteredMetadataInformer(metadataClient, corev1.SchemeGroupVersion.WithResource("secrets"), metav1.NamespaceAll, 0, nil, selecting(copySelector())).Informer(),
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, informer := range all {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	stop = func() { cancel(); running.Wait() }
	for _, informer := range all {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			stop()
			return nil, context.Cause(ctx)
		}
	}
	return stop, nil
}

package main

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// memoryResult is the memory of programs beside unrelated Secrets.
type memoryResult struct {
	unrelated     int
	before, after cost // the controller without and with the unrelated Secrets
	naive         cost // with them
}

// cost is what a program took to start, and what it uses then.
type cost struct {
	start  time.Duration // until its caches have synced
	memory uint64        // peak resident memory, in bytes
}

// measureMemory measures the memory of the controller beside Secrets that are no business of its own.
func (b *bench) measureMemory(r *memoryResult) error {
	const sources, namespaces = 1, 100
	watching, end := context.WithCancel(b.ctx)
	stop, err := b.copies.watch(watching, b.client, copySelector())
	if err != nil {
		end()
		return err
	}
	defer stop()
	defer end()
	if err := b.createNamespaces(namespaces); err != nil {
		return err
	}
	if _, err := b.client.CoreV1().Secrets(namespace).Create(b.ctx, source(sourceName(0), data("x", b.bytes)), metav1.CreateOptions{}); err != nil {
		return err
	}
	start := func(start func() (*program, error), copies bool) (p cost, err error) {
		begin := time.Now()
		running, err := start()
		if err != nil {
			return p, err
		}
		defer func() {
			if stopped := running.stop(); copies { // the naive program does not handle SIGTERM
				err = errors.Join(err, stopped)
			}
		}()
		if err := b.until("its caches have synced", running.notSynced); err != nil {
			return p, err
		}
		p.start = time.Since(begin)
		if copies {
			if err := b.awaitCopies(size{sources, namespaces}, "x", true); err != nil {
				return p, err
			}
		}
		p.memory, err = running.memory()
		return p, err
	}
	b.say("the controller, without other Secrets")
	if r.before, err = start(b.startController, true); err != nil {
		return err
	}
	b.say("creating %d Secrets of %d KB", r.unrelated, unrelatedBytes/1000)
	other, err := b.client.CoreV1().Namespaces().Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unrelated"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := b.forAll(r.unrelated, func(i int) error {
		_, err := b.client.CoreV1().Secrets(other.Name).Create(b.ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("unrelated-%d", i)}, Data: data("", unrelatedBytes),
		}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("create unrelated Secrets: %w", err)
	}
	b.say("the controller, beside %d other Secrets", r.unrelated)
	if r.after, err = start(b.startController, true); err != nil {
		return err
	}
	b.say("the naive program, beside %d other Secrets", r.unrelated)
	r.naive, err = start(func() (*program, error) {
		return b.start("naive-secretsync", b.cluster.Kubeconfig, "on-events", namespace)
	}, false)
	return err
}

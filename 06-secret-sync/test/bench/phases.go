package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// phase is what one kind of change took, from the first request until all copies were in their final state.
type phase struct {
	took          time.Duration
	writes, reads int // requests for Secrets, without the writes of the benchmark itself
}

// lifecycle holds the phases of a size.
type lifecycle struct{ create, update, remove phase }

// create creates the sources, each made by source, and measures until all copies are there.
func (b *bench) create(s size, source func(name string, data map[string][]byte) *corev1.Secret) (phase, error) {
	return b.phase(s.sources, func() error {
		b.revision++
		revision := fmt.Sprint(b.revision)
		if err := b.forAll(s.sources, func(i int) error {
			_, err := b.client.CoreV1().Secrets(namespace).Create(b.ctx, source(sourceName(i), data(revision, b.bytes)), metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
		return b.awaitCopies(s, revision, true)
	})
}

// change changes the sources, several times at short intervals, and measures until all copies follow.
func (b *bench) change(s size, times int) (phase, error) {
	return b.phase(times*s.sources, func() error {
		var revision string
		for i := range times {
			if i > 0 {
				if err := b.sleep(burstInterval); err != nil {
					return err
				}
			}
			b.revision++
			revision = fmt.Sprint(b.revision)
			patch, err := json.Marshal(map[string]any{"data": data(revision, b.bytes)})
			if err != nil {
				return err
			}
			if err := b.forAll(s.sources, func(i int) error {
				_, err := b.client.CoreV1().Secrets(namespace).Patch(b.ctx, sourceName(i), types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			}); err != nil {
				return err
			}
		}
		return b.awaitCopies(s, revision, true)
	})
}

// remove deletes the sources, and measures until no copy is left.
func (b *bench) remove(s size) (phase, error) {
	return b.phase(s.sources, func() error {
		if err := b.forAll(s.sources, func(i int) error {
			return b.client.CoreV1().Secrets(namespace).Delete(b.ctx, sourceName(i), metav1.DeleteOptions{})
		}); err != nil {
			return err
		}
		return b.awaitCopies(s, "", false)
	})
}

// phase measures do, and the requests for Secrets until they have ended. own is the number of writes that do makes itself.
func (b *bench) phase(own int, do func() error) (p phase, err error) {
	before, err := countRequests(b.ctx, b.client)
	if err != nil {
		return p, err
	}
	from := time.Now()
	if err := do(); err != nil {
		return p, err
	}
	p.took = time.Since(from)
	after, err := b.awaitQuiet()
	if err != nil {
		return p, err
	}
	p.writes, p.reads = after.writes()-before.writes()-own, after.reads()-before.reads()
	return p, nil
}

// awaitQuiet waits until the API server has not answered a request for Secrets for a while.
func (b *bench) awaitQuiet() (last requests, err error) {
	for {
		now, err := countRequests(b.ctx, b.client)
		if err != nil || maps.Equal(now, last) {
			return now, err
		}
		last = now
		if err := b.sleep(quietPeriod); err != nil {
			return nil, err
		}
	}
}

// awaitCopies waits until all copies hold a revision, or until none are left.
func (b *bench) awaitCopies(s size, revision string, left bool) error {
	return b.until("the copies are as they should be", func() string {
		all, current := b.copies.count(revision)
		switch {
		case !left && all > 0:
			return fmt.Sprintf("%d are left", all)
		case left && (current < s.copies() || all > current):
			return fmt.Sprintf("%d of %d are", current, s.copies())
		}
		return ""
	})
}

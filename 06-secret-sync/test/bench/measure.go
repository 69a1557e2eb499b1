package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
)

// sizeResult is what was measured with one size.
type sizeResult struct {
	size
	rounds []round
	rest   phase
}

// round is what was measured of each program, one after the other.
type round struct {
	plain      lifecycle
	watching   lifecycle // of a plain client that keeps the controller's watches
	controller lifecycle
	burst      phase  // several changes of the sources within half a second
	memory     uint64 // peak of the controller's resident memory, in bytes

	peer       lifecycle // of kubernetes-replicator; zero without it
	peerMemory uint64
}

// result is what was measured.
type result struct {
	sizes  []sizeResult
	memory *memoryResult // nil if it was not measured
}

// measure builds the programs of the repository at root, and measures each size on a cluster of its own, which it removes
// in any case. It prints each result to out as soon as it is known.
func measure(ctx context.Context, o options, root string, out, progress io.Writer) (r result, err error) {
	paths := map[string]string{"kubernetes-replicator": o.replicator}
	dir := filepath.Join(root, "06-secret-sync")
	for _, name := range []string{"kubectl-secretsync", "naive-secretsync"} {
		paths[name], err = gobuild.Build(ctx, gobuild.Program{Name: name, Dir: dir, Package: "./cmd/" + name, Sources: []string{"."}}, progress)
		if err != nil {
			return r, err
		}
	}
	onCluster := func(do func(*bench) error) (err error) {
		c, err := cluster.Start(ctx, cluster.Options{Progress: progress})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Stop()) }()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() {
			select {
			case <-c.Done():
				cancel(c.Err())
			case <-ctx.Done():
			}
		}()
		b := &bench{options: o, ctx: ctx, fail: cancel, progress: progress, cluster: c, dir: dir, paths: paths}
		if err = b.open(); err == nil {
			err = do(b)
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the error is only a consequence of this
		}
		return err
	}
	for _, s := range o.sizes {
		measured := sizeResult{size: s}
		if err := onCluster(func(b *bench) error { return b.measure(&measured) }); err != nil {
			return r, fmt.Errorf("measure %s: %w", s, err)
		}
		r.sizes = append(r.sizes, measured)
		if err := reportSize(out, o, measured); err != nil {
			return r, err
		}
	}
	if o.unrelated > 0 {
		r.memory = &memoryResult{unrelated: o.unrelated}
		if err := onCluster(func(b *bench) error { return b.measureMemory(r.memory) }); err != nil {
			return r, fmt.Errorf("measure memory: %w", err)
		}
		return r, reportMemory(out, *r.memory)
	}
	return r, nil
}

// measure measures one size.
func (b *bench) measure(r *sizeResult) (err error) {
	watching, end := context.WithCancel(b.ctx)
	stop, err := b.copies.watch(watching, b.client, copySelector())
	if err != nil {
		end()
		return err
	}
	defer stop()
	defer end()
	if err := b.createNamespaces(r.namespaces); err != nil {
		return err
	}
	client, err := b.clientOfController()
	if err != nil {
		return err
	}
	plain := plainClient{client: client, workers: b.workers, bytes: b.bytes}
	b.say("%s: warming up", r.size)
	few := size{1, min(200, r.namespaces)}
	if _, err := b.plain(plain, few); err != nil {
		return err
	}
	for i := range b.rounds {
		var one round
		if one.plain, err = b.plain(plain, r.size); err != nil {
			return err
		}
		if one.watching, err = b.watching(plain, r.size); err != nil {
			return err
		}
		if err := b.controller(r, &one, i == 0); err != nil {
			return err
		}
		if b.replicator != "" {
			if err := b.peer(r.size, &one); err != nil {
				return fmt.Errorf("kubernetes-replicator: %w", err)
			}
		}
		b.say("%s: round %d of %d: %s", r.size, i+1, b.rounds, one)
		r.rounds = append(r.rounds, one)
	}
	return nil
}

// String says what a round took.
func (r round) String() string {
	return fmt.Sprintf("create %s, %s, %s; update %s, %s, %s, %d changes %s; delete %s, %s, %s",
		seconds(r.plain.create.took), seconds(r.watching.create.took), seconds(r.controller.create.took),
		seconds(r.plain.update.took), seconds(r.watching.update.took), seconds(r.controller.update.took), burstChanges, seconds(r.burst.took),
		seconds(r.plain.remove.took), seconds(r.watching.remove.took), seconds(r.controller.remove.took))
}

// watching measures a plain client that also keeps the watches of the controller, with its rights, and does nothing with them.
func (b *bench) watching(client plainClient, s size) (l lifecycle, err error) {
	config, err := b.cluster.ServiceAccountConfig(b.ctx, namespace, account)
	if err != nil {
		return l, err
	}
	stop, err := keepWatches(b.ctx, config)
	if err != nil {
		return l, err
	}
	defer stop()
	return b.plain(client, s)
}

// plain measures a plain client.
func (b *bench) plain(client plainClient, s size) (l lifecycle, err error) {
	for _, p := range []struct {
		phase *phase
		write func(_ context.Context, namespace, name, revision string) error
		left  bool
	}{{&l.create, client.create, true}, {&l.update, client.update, true}, {&l.remove, client.delete, false}} {
		b.revision++
		revision := fmt.Sprint(b.revision)
		*p.phase, err = b.phase(0, func() error {
			if err := client.forAll(b.ctx, s, revision, p.write); err != nil {
				return err
			}
			return b.awaitCopies(s, revision, p.left)
		})
		if err != nil {
			return l, err
		}
	}
	return l, nil
}

// controller measures the controller, and if rests is true, also what it does at rest.
func (b *bench) controller(r *sizeResult, one *round, rests bool) (err error) {
	running, err := b.startController()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	if err := b.until("its caches have synced", running.notSynced); err != nil {
		return err
	}
	if one.controller.create, err = b.create(r.size, source); err != nil {
		return err
	}
	if one.controller.update, err = b.change(r.size, 1); err != nil {
		return err
	}
	if one.burst, err = b.change(r.size, burstChanges); err != nil {
		return err
	}
	if rests {
		if r.rest, err = b.phase(0, func() error { return b.sleep(b.rest) }); err != nil {
			return err
		}
	}
	if one.controller.remove, err = b.remove(r.size); err != nil {
		return err
	}
	one.memory, err = running.memory()
	return err
}

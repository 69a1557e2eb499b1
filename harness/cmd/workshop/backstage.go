package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/guess"
)

// backstage prepares where questions are played while the learner reads the first one.
type backstage struct {
	progress patientWriter
	cancel   context.CancelFunc // ends preparing
	ready    chan struct{}      // closed when the rest is set
	root     string
	keep     bool

	cluster *cluster.Cluster
	scratch string
	remove  func() error
	err     error
}

// patientWriter writes to standard error once somebody waits for what is reported.
type patientWriter struct{ isAwaited atomic.Bool }

// Write implements io.Writer.
func (w *patientWriter) Write(text []byte) (int, error) {
	if !w.isAwaited.Load() {
		return len(text), nil
	}
	return os.Stderr.Write(text)
}

func startBackstage(ctx context.Context, root string, keep bool) *backstage {
	b := &backstage{ready: make(chan struct{}), root: root, keep: keep}
	ctx, b.cancel = context.WithCancel(ctx)
	go func() {
		defer close(b.ready)
		b.err = b.prepare(ctx)
	}()
	return b
}

func (b *backstage) prepare(ctx context.Context) (err error) {
	if b.scratch, b.remove, err = guard.TempDir("workshop-guess-"); err != nil {
		return fmt.Errorf("make a directory for the questions: %w", err)
	}
	options := cluster.Options{Nodes: 3, Progress: &b.progress}
	if b.keep {
		b.cluster, err = cluster.Up(ctx, options, upDir(b.root))
		if errors.Is(err, cluster.ErrAlreadyUp) {
			return fmt.Errorf("%w; stop it first (make down), or leave out KEEP=1", err)
		}
	} else {
		b.cluster, err = cluster.Start(ctx, options)
	}
	if err != nil {
		return err
	}
	// Otherwise the first program would be compiled, and perhaps downloaded, in front of the learner.
	dir := filepath.Join(b.root, guess.Dir)
	if err := gobuild.Download(ctx, dir, guess.Dir, &b.progress); err != nil {
		return err
	}
	return gobuild.Packages(ctx, dir, guess.Dir, "", &b.progress)
}

// watch ends a session if its control plane ends.
func (b *backstage) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return
	}
	if b.cluster == nil {
		return
	}
	select {
	case <-b.cluster.Done():
		cancel(b.cluster.Err())
	case <-ctx.Done():
	}
}

// stage waits until all is prepared.
func (b *backstage) stage(ctx context.Context) (*guess.Stage, error) {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(5 * time.Second):
		b.progress.isAwaited.Store(true)
		fmt.Fprintln(os.Stderr, "not ready yet; the first time, the control plane and the programs are compiled, which takes some minutes")
		select {
		case <-b.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if b.err != nil {
		return nil, b.err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &guess.Stage{Cluster: b.cluster, Scratch: b.scratch, Workshop: self}, nil
}

// end disposes of everything. It is called with the session's error. Whoever leaves at the first question does not wait until
// everything is compiled.
func (b *backstage) end(sessionErr error) (err error) {
	b.cancel()
	<-b.ready
	switch {
	case b.cluster == nil:
	case !b.keep:
		err = b.cluster.Stop()
	case sessionErr != nil:
		err = cluster.Down(context.Background(), upDir(b.root))
	}
	if b.remove != nil {
		err = errors.Join(err, b.remove())
	}
	return err
}

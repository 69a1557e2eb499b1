package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/exercise"
)

// classroom is what the commands for exercises work with.
type classroom struct {
	catalogue *exercise.Catalogue
	progress  *exercise.Progress
	grader    *exercise.Grader
	clusters  *warmCluster
}

func enterClassroom(ctx context.Context) (*classroom, error) {
	root, err := cluster.Root(ctx)
	if err != nil {
		return nil, err
	}
	catalogue, err := exercise.Open(root)
	if err != nil {
		return nil, err
	}
	progress, err := catalogue.ReadProgress()
	if err != nil {
		return nil, err
	}
	clusters := &warmCluster{root: root, progress: os.Stderr}
	return &classroom{catalogue, progress, &exercise.Grader{Catalogue: catalogue, Kubeconfig: clusters.kubeconfig}, clusters}, nil
}

// exercise returns the exercise that the arguments of a command name, or the current one.
func (c *classroom) exercise(args []string) (exercise.Exercise, error) {
	if len(args) == 0 {
		e, _ := c.progress.CurrentOf(c.catalogue)
		return e, nil
	}
	return c.catalogue.Find(args[0])
}

// warmCluster is the cluster of "workshop up" or, if that is not up, a control plane that is started when it is needed for the
// first time, and then kept.
type warmCluster struct {
	root string
	// progress is where the progress of starting one is written to.
	progress io.Writer

	mu      sync.Mutex
	cluster *cluster.Cluster
	isFound bool // it is that of "workshop up", which may end at any time
}

func (w *warmCluster) kubeconfig(ctx context.Context) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := upDir(w.root)
	switch {
	case w.cluster == nil:
	case w.isFound:
		if cluster.IsUp(dir) {
			return w.cluster.Kubeconfig, nil
		}
	default:
		select {
		case <-w.cluster.Done(): // it has crashed
		default:
			return w.cluster.Kubeconfig, nil
		}
	}
	w.cluster, w.isFound = nil, false // it must not be used again, even if there will be no other
	c, err := cluster.Find(ctx, dir, w.progress)
	isFound := err == nil
	if errors.Is(err, cluster.ErrNotUp) {
		c, err = cluster.Start(ctx, cluster.Options{Nodes: 3, Progress: w.progress})
	}
	if err != nil {
		return "", err
	}
	w.cluster, w.isFound = c, isFound
	return c.Kubeconfig, nil
}

func (w *warmCluster) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cluster == nil {
		return nil
	}
	return w.cluster.Stop()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/kind"
	"example.com/controllers/harness/lesson"
)

// kindOptions are the options of the kind cluster that lessons are played on. Lesson 1 creates 300 Pods, of which a small
// computer cannot run all; the others stay Pending, which makes no difference to the lesson.
func kindOptions(root string) kind.Options {
	return kind.Options{Dir: filepath.Join(root, ".workshop", "kind"), Workers: 1, MaxPods: 25, Progress: os.Stderr}
}

// openKind opens the kind cluster, or creates it, and loads what the lesson's Pods run. A cluster that it has created is
// deleted at the end, unless it is to be kept.
func (o *opened) openKind(ctx context.Context, root string, l lesson.Lesson, keep bool) error {
	images, err := l.Images()
	if err != nil {
		return err
	}
	k, err := kind.Up(ctx, kindOptions(root))
	if err != nil {
		return err
	}
	end := o.end
	o.end = func(lessonErr error) error {
		err := end(lessonErr)
		if k.Created && (!keep || lessonErr != nil) {
			err = errors.Join(err, k.Delete())
		}
		return err
	}
	o.cluster, o.disposable = k.Cluster, k.Created
	standIns, err := kind.StandIns(ctx, images.Workloads...)
	if err == nil {
		err = k.Load(ctx, standIns...)
	}
	if err != nil && k.Created {
		err = errors.Join(err, k.Delete())
	}
	return err
}

func kindDownCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kind-down",
		Short: "Delete the kind cluster that a lesson was played on",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := cluster.Root(cmd.Context())
			if err != nil {
				return err
			}
			existed, err := kind.Delete(cmd.Context(), kindOptions(root))
			if err != nil {
				return err
			}
			if !existed {
				return errors.New("there is no kind cluster to delete")
			}
			fmt.Println("deleted")
			return nil
		},
	}
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// kindFlags are the flags of "workshop run" for a kind cluster.
type kindFlags struct {
	enabled, keep bool
	workers       int
	auditPolicy   string
}

// runOnKind runs a command with a kind cluster, whose name is in [kind.NameVariable].
func runOnKind(ctx context.Context, f kindFlags, args []string) (err error) {
	root, err := cluster.Root(ctx)
	if err != nil {
		return err
	}
	options := kind.Options{
		Name:     cmp.Or(os.Getenv(kind.NameVariable), "workshop-e2e"),
		Dir:      filepath.Join(root, ".workshop", "kind"),
		Workers:  f.workers,
		Progress: os.Stderr,
	}
	if f.auditPolicy != "" {
		text, err := os.ReadFile(f.auditPolicy)
		if err != nil {
			return err
		}
		options.AuditPolicy = string(text)
	}
	k, err := kind.Up(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		if k.Created && !f.keep {
			err = errors.Join(err, k.Delete())
			return
		}
		fmt.Fprintf(os.Stderr, "kind cluster %q is still up: export KUBECONFIG=%s\nTo delete it:  make kind-down KIND_CLUSTER=%s\n", k.ID, quote(k.Kubeconfig), k.ID)
	}()
	scratch, err := os.MkdirTemp("", "workshop-run-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), k.Env(scratch)...)
	cmd.Env = append(cmd.Env, kind.NameVariable+"="+k.ID, cluster.KubeconfigVariable+"="+k.Kubeconfig)
	return runToEnd(ctx, cmd)
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

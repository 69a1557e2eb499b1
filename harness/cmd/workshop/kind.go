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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/kind"
	"example.com/controllers/harness/lesson"
)

// kindOptions are the options of the kind cluster that lessons are played on. It has one Node: lesson 1 counts requests
// with the API server's metrics, and what runs on each Node adds some. Lesson 1 also creates 300 Pods, of which a small
// computer cannot run all, and a kubelet that starts many Pods sends many requests. So few of them run, and the others stay
// Pending.
func kindOptions(root string) kind.Options {
	return kind.Options{Dir: filepath.Join(root, ".workshop", "kind"), MaxPods: 25, Progress: os.Stderr}
}

// openKind opens the kind cluster, or creates it, and loads what the lesson's Pods run. A cluster that it has created is
// deleted at the end, unless it is to be kept. machines is how many simulated machines the page needs; 0 if it needs none.
func (o *opened) openKind(ctx context.Context, root string, l lesson.Lesson, machines int, keep bool) (err error) {
	images, err := l.Images()
	if err != nil {
		return err
	}
	options := kindOptions(root)
	if machines > 0 {
		// Not the cluster of other lessons, because this one loses its Nodes.
		options.Name = cmp.Or(os.Getenv(kind.NameVariable), kind.DefaultName) + "-machines"
	}
	k, err := kind.Up(ctx, options)
	if err != nil {
		return err
	}
	remove := func() error {
		if !k.Created {
			return nil
		}
		return k.Delete()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove())
		}
	}()
	end := o.end
	o.end = func(lessonErr error) error {
		err := end(lessonErr)
		if !keep || lessonErr != nil {
			err = errors.Join(err, remove())
		}
		return err
	}
	o.cluster, o.disposable = k.Cluster, k.Created
	if machines > 0 {
		return o.simulate(ctx, k, machines)
	}
	standIns, err := kind.StandIns(ctx, images.Workloads...)
	if err != nil {
		return err
	}
	return k.Load(ctx, standIns...)
}

// simulate replaces the Nodes of a kind cluster that was just created by simulated machines, which can be told to reboot, to
// hang or to ignore a command. The control plane runs on without a Node, as that of a managed cluster does.
func (o *opened) simulate(ctx context.Context, k *kind.Cluster, machines int) error {
	if !k.Created {
		return fmt.Errorf("kind cluster %q exists, and cannot be used for simulated machines; delete it with: make kind-down KIND_CLUSTER=%s", k.ID, k.ID)
	}
	client, err := k.Client()
	if err != nil {
		return err
	}
	names, err := k.NodeNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete Node %s: %w", name, err)
		}
	}
	stop, err := k.Simulate(ctx, machines, o.scratch)
	if err != nil {
		return err
	}
	o.cluster.Nodes = machines
	end := o.end
	o.end = func(lessonErr error) error { return errors.Join(stop(), end(lessonErr)) }
	return nil
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

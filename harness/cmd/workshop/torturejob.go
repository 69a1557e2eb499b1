package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/image"
	"example.com/controllers/harness/kind"
	"example.com/controllers/harness/torture"
	"example.com/controllers/harness/torturejob"
)

// onFlags are the flags of "workshop torture" for a cluster that runs the plans.
type onFlags struct {
	on, image, namespace, cpu, memory string
	workers                           int
	yes                               bool
}

func (f *onFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.on, "on", "", `run the plans as a Job on a cluster: "context:NAME" for a context of your kubeconfig, "kind" for a kind cluster`)
	flags.IntVar(&f.workers, "workers", 3, "with --on: number of Pods, each with a share of the plans")
	flags.StringVar(&f.image, "image", "", "with --on: name and tag to push the image to, such as REGISTRY/torture:dev; not needed for kind clusters on this computer")
	flags.StringVar(&f.namespace, "job-namespace", "workshop-torture", "with --on: namespace of the Job; if it does not exist, it is created, and deleted at the end")
	flags.StringVar(&f.cpu, "cpu", "1", "with --on: CPUs that each Pod requests")
	flags.StringVar(&f.memory, "memory", "3Gi", "with --on: memory that each Pod requests, and its limit")
	flags.BoolVar(&f.yes, "yes", false, "with --on: do not ask before creating the Job")
}

// workerCluster is the cluster whose Pods run plans.
type workerCluster struct {
	*cluster.Cluster
	kind    *kind.Cluster // nil if images have to be pushed
	scratch string
	created bool // by this process, which deletes it
}

// check returns an error for flags that cannot be right.
func (f *onFlags) check() error {
	if f.on == "" {
		return nil
	}
	cpu, err := resource.ParseQuantity(f.cpu)
	if err != nil || cpu.Sign() <= 0 {
		return fmt.Errorf("--cpu is %q; it must be a number of CPUs, such as 1 or 500m", f.cpu)
	}
	memory, err := resource.ParseQuantity(f.memory)
	if err != nil || memory.Sign() <= 0 {
		return fmt.Errorf("--memory is %q; it must be a number of bytes, such as 3Gi", f.memory)
	}
	if f.workers < 1 {
		return errors.New("--workers must be 1 or more")
	}
	if f.on != "kind" && !f.isContext() {
		return fmt.Errorf(`--on is %q; it must be "kind" or "context:NAME"`, f.on)
	}
	return nil
}

func (f *onFlags) isContext() bool { return strings.HasPrefix(f.on, contextPrefix) }

const contextPrefix = "context:"

// open opens the cluster.
func (f *onFlags) open(ctx context.Context, root string) (w *workerCluster, err error) {
	if !f.isContext() {
		k, err := kind.Up(ctx, kindOptions(root))
		if err != nil {
			return nil, err
		}
		return &workerCluster{Cluster: k.Cluster, kind: k, created: k.Created}, nil
	}
	contextName := strings.TrimPrefix(f.on, contextPrefix)
	w = &workerCluster{kind: kind.OfContext(ctx, contextName, os.Stderr)}
	if w.kind == nil && f.image == "" {
		return nil, fmt.Errorf("the nodes of %s must be able to pull the image: give --image, with a registry that you can push to", contextName)
	}
	if w.scratch, err = os.MkdirTemp("", "workshop-torture-on-"); err != nil {
		return nil, err
	}
	if w.Cluster, err = cluster.Open(ctx, contextName, w.scratch, os.Stderr); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// ask asks before a Job is created on a cluster that we have not started.
func (f *onFlags) ask(ctx context.Context) error {
	if f.yes || !f.isContext() {
		return nil
	}
	fmt.Fprintf(os.Stderr, "Torture will create a Job of %d Pods in namespace %s on %s, and delete it at the end.\nEach Pod requests %s CPU and %s of memory. Type yes to continue: ",
		f.workers, f.namespace, f.on, f.cpu, f.memory)
	answer, err := newKeyboard().line(ctx)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer != "yes" {
		return errors.New("nothing was changed; to create the Job, type yes, or give --yes")
	}
	return nil
}

func (w *workerCluster) close() error {
	var err error
	if w.scratch != "" {
		err = os.RemoveAll(w.scratch)
	}
	if w.created {
		err = errors.Join(err, w.kind.Delete())
	}
	return err
}

// architecture returns that of the cluster's nodes.
func (w *workerCluster) architecture(ctx context.Context) (string, error) {
	client, err := w.Client()
	if err != nil {
		return "", err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("find out the architecture of the nodes: %w", err)
	}
	found := ""
	for _, node := range nodes.Items {
		switch arch := node.Status.NodeInfo.Architecture; {
		case found == "":
			found = arch
		case arch != found:
			return "", fmt.Errorf("the cluster has nodes of different architectures, %s and %s; the Pods' image is for one", found, arch)
		}
	}
	return found, nil
}

// elsewhere returns [torture.Options.Elsewhere].
func (w *workerCluster) elsewhere(root string, f tortureFlags, scenario *torture.Scenario, command []string) func(context.Context, []torture.Plan, func(torture.Outcome) error) error {
	return func(ctx context.Context, plans []torture.Plan, finished func(torture.Outcome) error) error {
		if len(plans) == 0 {
			return nil
		}
		arch, err := w.architecture(ctx)
		if err != nil {
			return err
		}
		contents := torturejob.Contents{Name: "torture:dev", Arch: arch, Root: root, Scenario: scenario, Plans: plans, Command: command, Progress: os.Stderr}
		if f.image != "" {
			contents.Name = f.image
		}
		built, arguments, err := torturejob.Image(ctx, contents)
		if err != nil {
			return err
		}
		pull := corev1.PullAlways
		if f.image == "" {
			pull = corev1.PullNever
			err = w.kind.Load(ctx, built)
		} else {
			err = push(ctx, built)
		}
		if err != nil {
			return err
		}
		client, err := w.Client()
		if err != nil {
			return err
		}
		flags := []string{"--nodes", fmt.Sprint(f.nodes), "--parallel", fmt.Sprint(f.parallel)}
		const retries = 3
		return torturejob.Run(ctx, torturejob.Options{
			Client: client, Namespace: f.namespace, Image: contents.Name, PullPolicy: pull, Workers: min(f.workers, len(plans)), Plans: len(plans),
			Arguments: append(flags, arguments...), CPU: resource.MustParse(f.cpu), Memory: resource.MustParse(f.memory), Retries: retries, Progress: os.Stderr,
		}, func(number int, o torture.Outcome) error {
			o.Plan = plans[number]
			return finished(o)
		})
	}
}

// push pushes an image to its registry, with the credentials of the user's Docker configuration.
func push(ctx context.Context, built *image.Image) error {
	fmt.Fprintf(os.Stderr, "pushing %s\n", built.Tag)
	var reference name.Reference = built.Tag
	if err := remote.Write(reference, built.Image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("push %s: %w; log in with \"docker login\", or give --image another registry", built.Tag, err)
	}
	return nil
}

// tortureWorkerCommand is what the Pods of such a Job run.
func tortureWorkerCommand() *cobra.Command {
	var scenario, plans string
	var nodes, parallel int
	cmd := &cobra.Command{
		Use: "torture-worker", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := torturejob.ReadWorker(cmd.Context(), scenario, plans, args)
			if err != nil {
				return err
			}
			w.Nodes, w.Parallel, w.Out, w.Progress = nodes, parallel, os.Stdout, os.Stderr
			return w.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&scenario, "scenario", "", "file of the scenario")
	cmd.Flags().StringVar(&plans, "plans", "", "file of the plans")
	cmd.Flags().IntVar(&nodes, "nodes", defaultNodes, "number of simulated nodes")
	cmd.Flags().IntVar(&parallel, "parallel", 0, "how many runs at a time")
	return cmd
}

// repositoryRoot is the directory of the workshop's repository, from which a Job's image is built.
func repositoryRoot(ctx context.Context) (string, error) {
	root, err := cluster.Root(ctx)
	if err != nil {
		return "", err
	}
	return filepath.Abs(root)
}

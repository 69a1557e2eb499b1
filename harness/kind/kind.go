// Package kind creates clusters whose Nodes are containers on this computer, with kind (https://kind.sigs.k8s.io).
//
//   - [Up] creates a cluster, or opens the one that it has created before. One of that name that somebody else has created
//     is an error; neither Up nor [Delete] touches it.
//   - It writes a kubeconfig of its own, and never changes the user's.
//   - If it fails, or its context is cancelled, nothing of a new cluster is left.
//   - When Docker or Podman cannot be used, the error says why, and what to do.
//
// A cluster outlives the process that has created it, until it is deleted with [Cluster.Delete].
package kind

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kind "sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/image"
	"example.com/controllers/harness/proc"
)

const (
	// NameVariable is the name of an environment variable with the name of the cluster; kind's own command calls it
	// KIND_CLUSTER_NAME.
	NameVariable = "KIND_CLUSTER"
	// ImageVariable is the name of an environment variable with the node image, such as "kindest/node:v1.37.0".
	ImageVariable = "KIND_NODE_IMAGE"
	// DefaultName is the name of a cluster for which neither Options.Name nor NameVariable is set.
	DefaultName = "workshop"
)

// Options configure a cluster. Workers, Image, MaxPods and AuditPolicy only matter when it does not exist yet.
type Options struct {
	// Name is the cluster's name, with which the names of its Nodes begin. Default: the value of [NameVariable], or else
	// [DefaultName].
	Name string
	// Dir is the directory for the cluster's kubeconfig, NAME.kubeconfig, and the audit policy.
	Dir string
	// Workers is the number of Nodes in addition to the one of the control plane. With 0, Pods run on that one.
	Workers int
	// Image is the image of the Nodes. Default: the value of [ImageVariable], or else what this version of kind has been
	// tested with.
	Image string
	// MaxPods is how many Pods each kubelet runs at most. Default: 110, as the kubelet's.
	MaxPods int
	// AuditPolicy is the audit policy of the API server, in YAML; see [Cluster.AuditLog]. Default: no audit log.
	AuditPolicy string
	// Progress gets a line for each step that takes long. nil discards them.
	Progress io.Writer
}

// Cluster is a cluster that kind has created.
type Cluster struct {
	*cluster.Cluster
	// ID is the cluster's name, as kind knows it.
	ID string
	// Created reports that Up has created the cluster, rather than found it.
	Created bool

	engine   engine
	provider *kind.Provider
	progress io.Writer
}

func (o *Options) setDefaults() {
	o.Name = cmp.Or(o.Name, os.Getenv(NameVariable), DefaultName)
	o.Image = cmp.Or(o.Image, os.Getenv(ImageVariable))
	if o.Progress == nil {
		o.Progress = io.Discard
	}
}

func (o *Options) kubeconfig() string { return filepath.Join(o.Dir, o.Name+".kubeconfig") }

// Up returns the cluster when all of its Nodes are Ready. If it does not exist, Up creates it, which takes half a minute if
// the node image is on this computer.
func Up(ctx context.Context, o Options) (c *Cluster, err error) {
	o.setDefaults()
	c, err = open(ctx, o)
	if err != nil {
		return nil, err
	}
	// kind makes the file if it does not exist, but not its directory.
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create a directory for the kubeconfig: %w", err)
	}
	names, err := c.provider.List()
	if err != nil {
		return nil, fmt.Errorf("list the kind clusters: %w", c.engine.explain(err))
	}
	if slices.Contains(names, o.Name) {
		if err := c.requireOurs(ctx); err != nil {
			return nil, err
		}
		err = c.provider.ExportKubeConfig(o.Name, o.kubeconfig(), false)
	} else {
		c.Created = true
		err = c.create(ctx, o)
	}
	if err == nil {
		err = c.connect(ctx, o)
	}
	switch {
	case err != nil && c.Created:
		return nil, errors.Join(err, c.Delete())
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("kind cluster %q exists, but cannot be used: %w; delete it with: make kind-down KIND_CLUSTER=%s", o.Name, c.engine.explain(err), o.Name)
	}
	return c, nil
}

// open returns a handle on a cluster that may not exist.
func open(ctx context.Context, o Options) (*Cluster, error) {
	engine, option, err := findEngine(ctx)
	if err != nil {
		return nil, err
	}
	return &Cluster{
		Cluster:  &cluster.Cluster{Kubeconfig: o.kubeconfig()},
		ID:       o.Name,
		engine:   engine,
		provider: kind.NewProvider(option, kind.ProviderWithLogger(&logger{out: o.Progress})),
		progress: o.Progress,
	}, nil
}

// requireOurs returns an error unless Up has created the cluster that exists. Up then left a kubeconfig, with the certificate
// of the cluster's own authority, or empty if it was killed before the cluster was complete. While the cluster's containers
// are stopped, its certificate cannot be read. Then, and if the file is empty, the cluster must not be much younger than it.
func (c *Cluster) requireOurs(ctx context.Context) error {
	ours, err := clientcmd.LoadFromFile(c.Kubeconfig)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read the kubeconfig of kind cluster %q: %w", c.ID, err)
	default:
		text, err := c.provider.KubeConfig(c.ID, true)
		if err != nil || len(ours.Clusters) == 0 {
			younger, err := c.isYounger(ctx)
			if err != nil || !younger {
				return err
			}
			break
		}
		theirs, err := clientcmd.Load([]byte(text))
		if err != nil {
			return fmt.Errorf("read the kubeconfig of kind cluster %q: %w", c.ID, err)
		}
		if bytes.Equal(authority(ours), authority(theirs)) {
			return nil
		}
	}
	return fmt.Errorf("kind cluster %[1]q was not created from this directory, and was not touched; set %[2]s to another name, or delete it: %[3]s rm --force $(%[3]s ps --all --quiet --filter label=io.x-k8s.kind.cluster=%[1]s)",
		c.ID, NameVariable, c.engine.command)
}

// isYounger reports whether the cluster was created long after the kubeconfig. Kind pulls its image in between.
func (c *Cluster) isYounger(ctx context.Context) (bool, error) {
	const pull = time.Hour
	mark, err := os.Stat(c.Kubeconfig)
	if err != nil {
		return false, err
	}
	containers, err := c.provider.ListInternalNodes(c.ID)
	if err != nil || len(containers) == 0 {
		return false, err
	}
	text, err := c.engine.run(ctx, "inspect", containers[0].String())
	if err != nil {
		return false, err
	}
	var inspected []struct{ Created time.Time }
	if err := json.Unmarshal([]byte(text), &inspected); err != nil || len(inspected) == 0 {
		return false, fmt.Errorf("find out when %s created container %s: %w", c.engine.name, containers[0], cmp.Or(err, errors.New("it is not there")))
	}
	return inspected[0].Created.After(mark.ModTime().Add(pull)), nil
}

// authority returns the certificate of the authority of a kubeconfig's only cluster.
func authority(config *clientcmdapi.Config) []byte {
	for _, c := range config.Clusters {
		return c.CertificateAuthorityData
	}
	return nil
}

// create creates the cluster. If ctx is cancelled, it deletes what there is of it and returns the cause.
func (c *Cluster) create(ctx context.Context, o Options) error {
	config, err := configure(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.kubeconfig(), nil, 0o600); err != nil { // the mark of requireOurs
		return err
	}
	created := make(chan error, 1)
	go func() {
		created <- c.provider.Create(o.Name, kind.CreateWithV1Alpha4Config(config), kind.CreateWithNodeImage(o.Image),
			kind.CreateWithKubeconfigPath(o.kubeconfig()), kind.CreateWithDisplayUsage(false), kind.CreateWithDisplaySalutation(false))
	}()
	select {
	case err := <-created:
		if err != nil {
			if ctx.Err() != nil { // Ctrl-C has reached kind's commands, too
				return context.Cause(ctx)
			}
			return fmt.Errorf("create kind cluster %q: %w", o.Name, c.engine.explain(err))
		}
		return nil
	case <-ctx.Done():
		// kind's library takes no context. Without its containers, it fails soon.
		for {
			_ = c.provider.Delete(o.Name, o.kubeconfig()) // the caller deletes it again, and reports the error
			select {
			case <-created:
				return context.Cause(ctx)
			case <-time.After(time.Second):
			}
		}
	}
}

// connect completes c, and waits until all of its Nodes are Ready.
func (c *Cluster) connect(ctx context.Context, o Options) error {
	opened, err := cluster.OpenFile(ctx, o.kubeconfig(), fmt.Sprintf("kind cluster %q", o.Name), o.Progress)
	if err != nil {
		return err
	}
	client, err := opened.Client()
	if err != nil {
		return err
	}
	containers, err := c.provider.ListInternalNodes(o.Name)
	if err != nil {
		return err
	}
	const limit = 5 * time.Minute
	var waiting []string
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil // the next attempt may succeed
		}
		waiting = nil
		for i := range list.Items {
			if !isReady(&list.Items[i]) {
				waiting = append(waiting, list.Items[i].Name)
			}
		}
		return len(waiting) == 0 && len(list.Items) == len(containers), nil
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("its Nodes are not Ready after %s: %s", limit, strings.Join(waiting, ", "))
	}
	opened.Nodes = len(containers)
	c.Cluster = opened
	return nil
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Delete deletes the cluster and its kubeconfig.
func (c *Cluster) Delete() error {
	err := c.provider.Delete(c.ID, c.Kubeconfig)
	if err != nil { // the kubeconfig, which is now empty, still says that the cluster is ours
		return fmt.Errorf("delete kind cluster %q: %w", c.ID, c.engine.explain(err))
	}
	// kind empties the file, and locks it with another one.
	for _, path := range []string{c.Kubeconfig, c.Kubeconfig + ".lock", auditPolicyPath(c.Kubeconfig)} {
		if removeErr := os.Remove(path); !errors.Is(removeErr, os.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}

// Delete deletes the cluster of these options, which [Up] has created, and reports whether it existed.
func Delete(ctx context.Context, o Options) (existed bool, err error) {
	o.setDefaults()
	c, err := open(ctx, o)
	if err != nil {
		return false, err
	}
	names, err := c.provider.List()
	if err != nil {
		return false, fmt.Errorf("list the kind clusters: %w", c.engine.explain(err))
	}
	existed = slices.Contains(names, o.Name)
	if existed {
		if err := c.requireOurs(ctx); err != nil {
			return false, err
		}
	}
	return existed, c.Delete()
}

// Load makes images available on all Nodes, so that Pods can run them without a registry.
func (c *Cluster) Load(ctx context.Context, images ...*image.Image) (err error) {
	containers, err := c.provider.ListInternalNodes(c.ID)
	if err != nil {
		return err
	}
	for _, node := range containers {
		missing := slices.DeleteFunc(slices.Clone(images), func(i *image.Image) bool { return has(node, i) })
		if len(missing) == 0 {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fmt.Fprintf(c.progress, "kind: loading images into %s (%d)\n", node, len(missing))
		read, write := io.Pipe()
		go func() { write.CloseWithError(image.Write(write, missing...)) }()
		err := nodeutils.LoadImageArchive(node, read)
		read.CloseWithError(err)
		if err != nil {
			return fmt.Errorf("load images into Node %s: %w", node, c.engine.explain(err))
		}
	}
	return nil
}

// has reports whether the Node has the image already.
func has(node nodes.Node, i *image.Image) bool {
	want, err := i.ConfigName()
	if err != nil {
		return false
	}
	id, err := nodeutils.ImageID(node, i.Tag.String())
	return err == nil && id == want.String()
}

// NodeNames returns the names of the cluster's Nodes, which are those of their containers.
func (c *Cluster) NodeNames() ([]string, error) {
	containers, err := c.provider.ListInternalNodes(c.ID)
	if err != nil {
		return nil, fmt.Errorf("list the Nodes of kind cluster %q: %w", c.ID, c.engine.explain(err))
	}
	var names []string
	for _, node := range containers {
		names = append(names, node.String())
	}
	slices.Sort(names)
	return names, nil
}

// Exec runs a command on a Node and returns its output.
func (c *Cluster) Exec(ctx context.Context, node string, command ...string) (string, error) {
	return c.engine.run(ctx, append([]string{"exec", node}, command...)...)
}

// Pause freezes all processes of a Node, as on a machine that hangs. [Cluster.Resume] lets them run again.
func (c *Cluster) Pause(ctx context.Context, node string) error {
	_, err := c.engine.run(ctx, "pause", node)
	return err
}

// Resume ends a [Cluster.Pause].
func (c *Cluster) Resume(ctx context.Context, node string) error {
	_, err := c.engine.run(ctx, "unpause", node)
	return err
}

// SurviveReboots makes each Node's container start again whenever its machine reboots. As kind has created them, they do so
// once, and after the next reboot they stay down.
func (c *Cluster) SurviveReboots(ctx context.Context) error {
	names, err := c.NodeNames()
	if err != nil {
		return err
	}
	// systemd ends with a status other than 0 when it reboots.
	_, err = c.engine.run(ctx, append([]string{"update", "--restart", "on-failure"}, names...)...)
	return err
}

// Dump writes the logs of the Nodes and of their Pods to a directory.
func (c *Cluster) Dump(dir string) error {
	if err := c.provider.CollectLogs(c.ID, dir); err != nil {
		return fmt.Errorf("collect the logs of kind cluster %q: %w", c.ID, c.engine.explain(err))
	}
	return nil
}

// run runs a command of the engine and returns its output.
func (e engine) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, e.command, args...)
	proc.Group(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", e.command, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

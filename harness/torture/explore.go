package torture

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	gopsutilnet "github.com/shirou/gopsutil/v4/net"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// FieldManager is the field manager of manifests and steps.
const FieldManager = fieldManager

// Exploration is a controller at work, without faults and without a judge. Who explores sees what it does, and takes steps that no
// scenario has yet.
type Exploration struct {
	// Before is the state in which the controller was started. Objects must not be modified.
	Before oracle.State
	run    *run
}

// Explore starts the controller in a world such as its runs have, calls visit, and ends all that it has started. The scenario's steps
// and rules are not looked at. An error that is a *[Failure] says what the controller did wrong by itself.
func (l *Lab) Explore(ctx context.Context, o Options, visit func(context.Context, *Exploration) error) (err error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	o.Progress = inTurn(o.Progress)
	s, err := l.prepare(ctx, o, o.Commands)
	if err != nil {
		return err
	}
	p := l.shared
	if o.Scenario.isCluster() {
		if p, err = l.newControlPlane(ctx, cmp.Or(s.scenario.Nodes, 3)); err != nil {
			return err
		}
		p.clients.alone = true
		defer func() { err = errors.Join(err, p.cluster.Stop()) }()
	}
	w := &world{subject: s, number: l.runs.Add(1), controlPlane: p}
	r := &run{processes: newProcesses(w)}
	r.machines = newMachines(ctx, r.processes)
	defer r.machines.stop()
	r.namespace = w.nameNamespace()
	if err := r.compile(); err != nil {
		return err
	}
	e := &Exploration{run: r}
	err = r.inWorld(ctx, func(ctx context.Context) (err error) {
		if _, err := e.Settle(ctx); err != nil {
			return err
		}
		e.Before, _ = r.states.Now()
		defer func() { err = errors.Join(err, r.stopAll()) }()
		if err := r.launch(ctx); err != nil {
			return err
		}
		return visit(ctx, e)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Namespace returns the namespace of the run.
func (e *Exploration) Namespace() string { return e.run.namespace }

// State returns the present objects of the scenario's resources, which must not be modified.
func (e *Exploration) State() oracle.State {
	state, _ := e.run.states.Now()
	return state
}

// History returns what the controller has asked for.
func (e *Exploration) History() *history.History { return e.run.recording.History() }

// Log returns what the controller has printed.
func (e *Exploration) Log() string { return e.run.log() }

// Do takes a step, and returns when our own watches have shown it.
func (e *Exploration) Do(ctx context.Context, step Step) error { return e.run.applyStep(ctx, step) }

// Accepts returns the error with which the API server would refuse a patch, or nil: it is asked for a dry run.
func (e *Exploration) Accepts(ctx context.Context, patch Patch) error {
	patch, err := inNamespace(patch, e.run.namespace)
	if err != nil {
		return err
	}
	resource, names, err := e.run.resolve(ctx, patch.Reference)
	if err != nil {
		return err
	}
	merge, err := json.Marshal(patch.Merge)
	if err != nil {
		return err
	}
	for _, name := range names {
		_, err := e.run.client(resource, patch.Reference).Patch(ctx, name, types.MergePatchType, merge, metav1.PatchOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
	}
	return nil
}

// The times of Settle.
const (
	// settledFor is how long nobody must have written anything.
	settledFor = 2 * time.Second
	// unsettledFor is how long a controller is waited for that writes again and again.
	unsettledFor = 30 * time.Second
)

// Settle waits until neither the controller nor anybody else has written anything for a while. rested is false if the controller does not
// stop to write. The error is a *[Failure] if the controller ended by itself.
func (e *Exploration) Settle(ctx context.Context) (rested bool, err error) {
	r := e.run
	writes, since := -1, time.Now()
	var last <-chan struct{}
	for begin := time.Now(); r.elapsed(begin) < unsettledFor; {
		if err := r.states.Err(); err != nil {
			return false, err
		}
		_, changed := r.states.Now()
		if now := r.countWrites(); now != writes || changed != last {
			writes, last, since = now, changed, time.Now()
		}
		if r.awake(since) > settledFor {
			return true, nil
		}
		if err := r.sleep(ctx, changed, 4*pollInterval); err != nil {
			return false, err
		}
	}
	return false, nil
}

// countWrites counts the writes of the programs, without Events and Leases.
func (ps *processes) countWrites() (count int) {
	for _, q := range ps.recording.History().Requests {
		if q.IsWrite() && !ps.isIncidental(q.Resource) {
			count++
		}
	}
	return count
}

// Ending is how a controller ended after SIGTERM.
type Ending struct {
	Status  int    // its exit status; -1 if the signal has ended it
	Problem string // what would be wrong with that in a scenario that says nothing of it; "" for nothing
}

// Stop tells the controller to stop, and says how it ended.
func (e *Exploration) Stop() (ending Ending) {
	for _, p := range e.run.programs {
		how, ran := p.stop()
		if !ran {
			continue
		}
		if how.state != nil {
			ending.Status = how.state.ExitCode()
			if status, is := how.state.Sys().(syscall.WaitStatus); is && status.Signaled() {
				ending.Status = -1
			}
		}
		if failure := how.afterSIGTERM(0); failure != nil {
			ending.Problem = failure.Message
		}
	}
	return ending
}

// Ports returns the TCP ports on which the controller listens, such as "8080".
func (e *Exploration) Ports(ctx context.Context) (ports []string, err error) {
	for _, p := range e.run.programs {
		pid := p.pid()
		if pid == 0 {
			continue
		}
		all, err := gopsutilnet.ConnectionsPidWithContext(ctx, "tcp", int32(pid))
		if err != nil {
			return nil, fmt.Errorf("find the ports of %s: %w", p.name, err)
		}
		for _, connection := range all {
			if port := fmt.Sprint(connection.Laddr.Port); connection.Status == "LISTEN" && !slices.Contains(ports, port) {
				ports = append(ports, port)
			}
		}
	}
	slices.SortFunc(ports, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return ports, nil
}

// ResourceOf returns the name of the resource of a kind, as in [Scenario.Resources].
func (e *Exploration) ResourceOf(kind schema.GroupVersionKind) (string, error) {
	mapping, err := e.run.controlPlane.clients.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return "", err
	}
	return mapping.Resource.GroupResource().String(), nil
}

// IsNamespaced reports whether the objects of a kind are in namespaces. It waits for a kind that was only just defined.
func (e *Exploration) IsNamespaced(ctx context.Context, kind schema.GroupVersionKind) (namespaced bool, err error) {
	var failed error
	_ = wait.PollUntilContextTimeout(ctx, pollInterval, servedTimeout, true, func(context.Context) (bool, error) {
		mapping, err := e.run.controlPlane.clients.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if failed = err; err != nil {
			e.run.controlPlane.clients.mapper.Reset()
			return false, nil
		}
		namespaced = mapping.Scope.Name() == meta.RESTScopeNameNamespace
		return true, nil
	})
	return namespaced, failed
}

// HasStatus reports whether the status of a kind is a resource of its own.
func (e *Exploration) HasStatus(kind schema.GroupVersionKind) bool {
	clients := e.run.controlPlane.clients
	mapping, err := clients.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return false
	}
	list, err := clients.Discovery().ServerResourcesForGroupVersion(kind.GroupVersion().String())
	return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == mapping.Resource.Resource+"/status" })
}

// Render returns the objects of manifests: of files, and of directories with a kustomization.yaml.
func (l *Lab) Render(ctx context.Context, manifests []string) ([]*unstructured.Unstructured, error) {
	s := &Scenario{Scope: "cluster"}
	for _, file := range manifests {
		absolute, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		s.Manifests = append(s.Manifests, absolute)
	}
	text, err := s.render(ctx, l.shared.cluster.Kubectl, l.shared.cluster.Dir())
	if err != nil {
		return nil, err
	}
	definitions, others, err := decodeManifests(text, "")
	return append(definitions, others...), err
}

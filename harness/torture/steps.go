package torture

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
)

// watchLimit is how long our own watches may take to show what a step has changed.
const watchLimit = time.Minute

// applyStep takes the actions of a step, and waits until our own watches have shown what they changed.
func (r *run) applyStep(ctx context.Context, step Step) error {
	for _, action := range step.Do {
		action, err := inNamespace(action, r.namespace)
		if err != nil {
			return err
		}
		applied, err := r.applyAction(ctx, action)
		if err != nil {
			return fmt.Errorf("step %q: %w", step.Name, err)
		}
		for _, a := range applied {
			for begin := time.Now(); !r.states.Seen(a.resource, a.resourceVersion) && r.states.Err() == nil; {
				if r.elapsed(begin) > watchLimit {
					return fmt.Errorf("%s after a step, the watch of %s has not shown its change; is it in another namespace than the run's? That needs \"scope: cluster\"", watchLimit, a.resource)
				}
				if err := r.sleep(ctx, nil, pollInterval/10); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// applyAction takes an action. If a fault has killed the control plane, it waits until it is back, and if the machine is so
// busy that the API server does not answer, or a request breaks off, until one is answered.
func (r *run) applyAction(ctx context.Context, action Action) ([]applied, error) {
	asked := deletions{}
	for begin := time.Now(); ; {
		all, err := r.tryAction(ctx, action, asked)
		isDown := r.controlPlane.crash != nil && isCutOff(err) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(http2.StreamError))
		if err == nil || !isDown || r.elapsed(begin) > time.Minute {
			return all, err
		}
		if err := r.sleep(ctx, nil, 4*pollInterval); err != nil {
			return nil, err
		}
	}
}

// isCutOff reports whether a request failed because there was no connection, or because it ended before the whole answer was
// read.
func isCutOff(err error) bool {
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsProbableEOF(err)
}

func (r *run) tryAction(ctx context.Context, action Action, asked deletions) ([]applied, error) {
	if name := cmp.Or(action.Stop, action.Kill, action.Start); name != "" && len(r.named(name)) == 0 {
		return nil, fmt.Errorf("there is no program %q in this run; there is %s", name, strings.Join(r.names(), ", "))
	}
	switch {
	case action.Pause.Duration != 0:
		return nil, r.sleep(ctx, nil, action.Pause.Duration)
	case action.Controller == "stop", action.Stop != "":
		programs := r.named(action.Stop)
		r.setDown(programs, true)
		r.stops.Wait()
		for _, p := range programs {
			if failure := p.end(r.scenario.StopsWith); failure != nil {
				return nil, failure
			}
		}
		return nil, nil
	case action.Kill != "":
		programs := r.named(action.Kill)
		r.setDown(programs, true)
		for _, p := range programs {
			p.kill()
		}
		return nil, nil
	case action.Controller == "start", action.Start != "":
		programs := r.named(action.Start)
		r.setDown(programs, false)
		for _, p := range programs {
			if err := p.start(); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case action.Machine != nil:
		return r.machines.change(ctx, *action.Machine)
	case action.Request != nil:
		at := slices.IndexFunc(r.outside, func(o *outside) bool { return o.name == action.Request.To })
		if at < 0 {
			return nil, fmt.Errorf("request: %s does not run yet; it is started with the controller", action.Request.To)
		}
		return nil, r.outside[at].send(ctx, action.Request)
	case action.Apply != nil:
		a, err := r.controlPlane.clients.applyOne(ctx, &unstructured.Unstructured{Object: action.Apply}, r.namespace, subresources(action.Subresource)...)
		return []applied{a}, err
	case action.Delete != nil:
		return nil, r.deleteObjects(ctx, *action.Delete, asked)
	}
	return r.patchObjects(ctx, *action.Patch, subresources(action.Subresource)...)
}

// deletions are the objects whose deletion an action has asked for, by name, as they were before. An attempt may be cut off
// after the API server has deleted one: the next must not take that for somebody else's work, nor delete a successor.
type deletions map[string]*unstructured.Unstructured

// request asks for the deletion of an object, unless that has already happened.
func (d deletions) request(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	current, err := client.Get(ctx, name, metav1.GetOptions{})
	if before := d[name]; before != nil && (apierrors.IsNotFound(err) || err == nil && current.GetUID() != before.GetUID()) {
		return nil
	}
	if err != nil {
		return err
	}
	isRepeated := d[name] != nil
	d[name] = current
	err = client.Delete(ctx, name, metav1.DeleteOptions{})
	if isRepeated && apierrors.IsNotFound(err) {
		return nil // the first request has deleted it meanwhile
	}
	return err
}

func (r *run) deleteObjects(ctx context.Context, ref Reference, asked deletions) error {
	resource, names, err := r.resolve(ctx, ref)
	if err != nil {
		return err
	}
	client := r.client(resource, ref)
	for _, name := range names {
		err := asked.request(ctx, client, name)
		if ref.isGone(err) {
			continue
		}
		if err != nil {
			return r.notApplied(ctx, resource, ref, name, fmt.Errorf("delete %s %s: %w", ref.Resource, name, err))
		}
		if err := r.awaitDeletion(ctx, resource.Resource, asked[name]); err != nil {
			return err
		}
	}
	for _, old := range asked { // also those that a selector no longer finds
		if err := r.awaitDeletion(ctx, resource.Resource, old); err != nil {
			return err
		}
	}
	return nil
}

// subresources returns the last arguments of a request for a subresource, or for the object itself.
func subresources(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

func (r *run) patchObjects(ctx context.Context, patch Patch, subresources ...string) (all []applied, err error) {
	resource, names, err := r.resolve(ctx, patch.Reference)
	if err != nil {
		return nil, err
	}
	merge, err := json.Marshal(patch.Merge)
	if err != nil {
		return nil, err
	}
	client := r.client(resource, patch.Reference)
	for _, name := range names {
		patched, err := client.Patch(ctx, name, types.MergePatchType, merge, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
		if patch.isGone(err) {
			continue
		}
		if err != nil {
			return nil, r.notApplied(ctx, resource, patch.Reference, name, fmt.Errorf("patch %s %s: %w", patch.Resource, name, err))
		}
		all = append(all, applied{resource.Resource, patched.GetResourceVersion()})
	}
	return all, nil
}

// notApplied returns the error of an action on an object. If the object is gone although it existed, that is a *Failure of the
// controller: without faults and without bugs, steps find what they change.
func (r *run) notApplied(ctx context.Context, resource resource, ref Reference, name string, err error) error {
	if !apierrors.IsNotFound(err) || !slices.Contains(r.scenario.plurals(), resource.Resource) {
		return err
	}
	object := map[string]any{"metadata": map[string]any{"name": name}}
	if resource.namespaced {
		object["metadata"].(map[string]any)["namespace"] = cmp.Or(ref.Namespace, r.namespace)
	}
	key := r.scope().Key(object)
	for { // until our own watch has shown the deletion
		state, changed := r.states.Now()
		if _, ok := state[resource.Resource][key]; !ok || r.states.Err() != nil {
			break
		}
		if err := r.sleep(ctx, changed, 4*pollInterval); err != nil {
			return err
		}
	}
	if v, change := r.rules.invariants.CheckAll(r.states); v != nil {
		return brokenRule(v, change, r.during(change.Time), r.namespace) // it says more
	}
	if !r.states.Existed(resource.Resource, key) {
		return err
	}
	what := resource.Resource + " " + key
	return &Failure{Different, "deleted: " + what, fmt.Sprintf("%s was deleted, and a step of the scenario changes it: %v", what, err)}
}

// isGone reports whether the error of a request for an object says that it has been deleted since the selector found it. That
// may well be the controller's job.
func (ref Reference) isGone(err error) bool { return ref.Selector != "" && apierrors.IsNotFound(err) }

// resolve returns the resource of a reference, and the names of the objects that it stands for.
func (w *world) resolve(ctx context.Context, ref Reference) (resource resource, names []string, err error) {
	if resource, err = w.controlPlane.clients.find(ctx, ref.Resource); err != nil {
		return resource, nil, err
	}
	if err := w.controlPlane.clients.checkScope(resource.GroupVersionResource, resource.namespaced, ref.Name, w.namespace); err != nil {
		return resource, nil, err
	}
	if ref.Selector == "" {
		return resource, []string{ref.Name}, nil
	}
	list, err := w.client(resource, ref).List(ctx, metav1.ListOptions{LabelSelector: ref.Selector})
	if err != nil {
		return resource, nil, fmt.Errorf("list %s: %w", ref.Resource, err)
	}
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return resource, names, nil
}

// client returns a client for the objects of a reference.
func (w *world) client(of resource, ref Reference) dynamic.ResourceInterface {
	return w.controlPlane.clients.of(of, cmp.Or(ref.Namespace, w.namespace))
}

// awaitDeletion waits until our own watch has shown that an object is being deleted or does not exist any more.
func (ps *processes) awaitDeletion(ctx context.Context, resource string, old *unstructured.Unstructured) error {
	if !slices.Contains(ps.scenario.plurals(), resource) {
		return nil
	}
	for {
		state, changed := ps.states.Now()
		object, ok := state[resource][ps.scope().Key(old.Object)]
		current := unstructured.Unstructured{Object: object}
		if !ok || current.GetUID() != old.GetUID() || current.GetDeletionTimestamp() != nil {
			return ps.states.Err()
		}
		if err := ps.sleep(ctx, changed, 4*pollInterval); err != nil {
			return err
		}
	}
}

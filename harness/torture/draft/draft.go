// Package draft writes a scenario for a controller that has none: it runs the controller, watches what it asks for and writes, changes
// what it has made and what it looks at, and notes what it comes to.
package draft

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/torture"
)

// Options say which controller a scenario is for.
type Options struct {
	File      string   // to write
	Command   []string // of the controller, with {kubeconfig} and so on to be replaced
	Manifests []string // files that are applied before the controller starts
	Samples   []string // files with objects for the controller to work on, which are created while it runs
	// Account is the ServiceAccount with whose rights the controller runs; "" for that of the manifests, if there is one. "none" for an
	// administrator's rights.
	Account string
	// Search is a directory in which CustomResourceDefinitions, RBAC and samples are looked for; "" for none.
	Search string
	// Meanwhile is for how long what a person does with kubectl becomes steps; 0 for not at all.
	Meanwhile time.Duration
	Progress  io.Writer
}

// Result is what was written.
type Result struct {
	File  string
	Steps int
	Runs  int      // without faults, at the end
	Notes []string // for the person
	Kept  []string // the parts of the file that were edited by hand, which have stayed
	Ports []string // fixed ones, which only one run at a time can have
}

// Write watches a controller and writes a scenario for it.
func Write(ctx context.Context, lab *torture.Lab, o Options) (*Result, error) {
	d := &drafter{Options: o, lab: lab}
	var err error
	if d.byHand, err = readOld(o.File); err != nil {
		return nil, err
	}
	render := func(files []string) ([]*unstructured.Unstructured, error) { return lab.Render(ctx, files) }
	if err := d.gather(render); err != nil {
		return nil, err
	}
	if err := d.look(ctx); err != nil {
		return nil, err
	}
	if err := d.play(ctx); err != nil {
		return nil, err
	}
	return d.finish(ctx)
}

// drafter writes one scenario.
type drafter struct {
	Options
	lab    *torture.Lab
	byHand sections // those of its parts that a person has written or changed
	given  material
	// outside are the programs outside of the cluster that the person has named.
	outside map[string]torture.Outside

	scenario outline
	history  []settled
	outputs  []outputs
	notes    []string
	// wasRefused says that the controller was forbidden something without a fault.
	wasRefused bool
	isRetried  bool     // without the rights that were found
	listening  []string // ports of the first exploration
	slowest    time.Duration
	hasOwners  bool // an object was seen to have an owner whose resource is not one of Kubernetes
}

func (d *drafter) say(format string, args ...any) {
	fmt.Fprintf(d.Progress, "torture init: "+format+"\n", args...)
}

func (d *drafter) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// explore runs the controller in the world of the scenario as it is by now, with what a person has added to the file.
func (d *drafter) explore(ctx context.Context, visit func(context.Context, *torture.Exploration) error) error {
	outline := d.scenario
	outline.account = d.given.accountIn(outline.scope)
	outline.converged = []condition{{rule: "true"}}
	outline.steps, outline.ready, outline.stopsWith = nil, nil, -1
	text := ""
	for _, s := range combine(d.byHand.without("steps", "converged", "ready", "setup", "invariants", "says", "mayDiffer", "stopsWith"), outline.sections(d.relative)) {
		text += s.text
	}
	scenario, err := readIn(filepath.Dir(d.File), text)
	if err != nil {
		return err
	}
	d.scenario.scope, d.outside = scenario.Scope, scenario.Outside
	return d.lab.Explore(ctx, torture.Options{Scenario: scenario, Commands: torture.Single(d.Command...), Progress: d.Progress}, visit)
}

// readIn reads a scenario as if it were in a directory.
func readIn(dir, text string) (*torture.Scenario, error) {
	file, err := os.CreateTemp(dir, ".torture-init-*.yaml")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	return torture.Read(file.Name())
}

// look runs the controller once to learn what it asks for.
func (d *drafter) look(ctx context.Context) error {
	d.scenario = outline{manifests: d.given.manifests, resources: []string{"configmaps"}}
	if d.given.account == "" && d.Account == "" && len(d.given.rbac) == 0 && !d.isRetried {
		d.note("No ServiceAccount was found, so the controller has an administrator's rights: a verb that is missing where you run it does not show. Name its RBAC with --manifest.")
	}
	d.say("run 1: which resources the controller asks for")
	visit := func(ctx context.Context, e *torture.Exploration) error {
		if _, err := e.Settle(ctx); err != nil {
			return d.ended(e, "at its start", err)
		}
		samples, err := d.samplesFor(ctx, e)
		if err != nil {
			return err
		}
		for _, step := range samples {
			if err := e.Do(ctx, step); err != nil {
				return fmt.Errorf("%w; if its CustomResourceDefinition is in a file, name that with --manifest", err)
			}
		}
		if _, err := e.Settle(ctx); err != nil {
			return d.ended(e, "after the samples were created", err)
		}
		if d.listening, err = e.Ports(ctx); err != nil {
			return err
		}
		return d.learnResources(e)
	}
	err := d.explore(ctx, visit)
	if errors.Is(err, torture.ErrShared) && d.scenario.scope == "" {
		d.say("an object is in no namespace, so each run gets a cluster of its own")
		d.scenario.scope = "cluster"
		err = d.explore(ctx, visit)
	}
	if len(d.given.rbac) > 0 && ctx.Err() == nil && (err != nil || d.wasRefused) {
		why := "it was forbidden to do something"
		if err != nil {
			why = err.Error()
		}
		d.note("The RBAC that was found does not fit (%s), so the controller has an administrator's rights. Name the right files with --manifest, and see which verb was missing.", why)
		d.say("without the RBAC that was found: %s", why)
		d.given, d.isRetried = d.given.withoutAccount(), true
		return d.look(ctx)
	}
	return err
}

// ended is the error of a controller that has ended by itself.
func (d *drafter) ended(e *torture.Exploration, when string, err error) error {
	failure := (*torture.Failure)(nil)
	if !errors.As(err, &failure) {
		return err
	}
	hint := ""
	if missing := unserved(e.History()); len(missing) > 0 {
		hint = fmt.Sprintf("\nIt has asked for %s, which the API server does not serve: name the file with the CustomResourceDefinition with --manifest", strings.Join(missing, ", "))
	}
	if refused := forbidden(e.History()); len(refused) > 0 {
		hint += fmt.Sprintf("\nIt was forbidden to %s: name the file with its RBAC rules with --manifest, or try --account none", strings.Join(refused, ", "))
	}
	return fmt.Errorf("%s, without any fault, %w%s\nThe end of its output:\n%s", when, failure, hint, tail(e.Log()))
}

func tail(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	const last = 15
	return "  " + strings.Join(lines[max(0, len(lines)-last):], "\n  ")
}

// notCounted are resources that belong to no controller's job, or that are in every cluster. Those that it writes count all the same.
var notCounted = []string{"nodes", "namespaces", "apiservices.apiregistration.k8s.io",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io", "serviceaccounts"}

// neverCounted are those that have no objects, or whose objects are the controller's own business.
func neverCounted(q history.Request) bool {
	return q.Resource == "" || q.Resource == "events" || q.Resource == "leases" || q.Group == "authentication.k8s.io" || q.Group == "authorization.k8s.io"
}

func resourceOf(q history.Request) string {
	if q.Group == "" {
		return q.Resource
	}
	return q.Resource + "." + q.Group
}

// learnResources notes which resources count, and whether all of the controller's job is in one namespace.
func (d *drafter) learnResources(e *torture.Exploration) error {
	h := e.History()
	if missing := unserved(h); len(missing) > 0 {
		d.note("The controller asks for %s, which the API server does not serve. If it needs them, name the file with the CustomResourceDefinition with --manifest.", strings.Join(missing, ", "))
	}
	refused := forbidden(h)
	if d.wasRefused = len(refused) > 0; d.wasRefused {
		d.note("Without any fault, the controller was forbidden to %s.", strings.Join(refused, ", "))
	}
	counted, ofSample := map[string]bool{}, map[string]bool{}
	for _, o := range d.given.samples {
		if resource, err := e.ResourceOf(o.GroupVersionKind()); err == nil {
			ofSample[resource] = true
		}
	}
	for _, q := range h.Requests {
		if _, isOutside := d.outside[q.Group]; isOutside || neverCounted(q) {
			continue
		}
		resource := resourceOf(q)
		isWritten := q.IsWrite() && !q.Failed()
		if isWritten && q.Namespace != e.Namespace() && d.scenario.scope == "" {
			d.say("it writes %s outside of the namespace %s, so each run gets a cluster of its own", resource, e.Namespace())
			d.scenario.scope = "cluster"
		}
		isOwnDefinition := q.Group == "apiextensions.k8s.io" // which some controllers write at their start, and which runs share
		if !q.Failed() && !isOwnDefinition && (isWritten || ofSample[resource] || !slices.Contains(notCounted, resource)) {
			counted[resource] = true
		}
	}
	d.scenario.resources = nil
	if own, is := d.byHand.of("resources"); is { // the person knows better
		var scenario torture.Scenario
		if err := yaml.Unmarshal([]byte(own.text), &scenario); err != nil {
			return err
		}
		d.scenario.resources = scenario.Resources
		d.scenario.manifests = d.given.without(func(definition string) bool { return slices.Contains(scenario.Resources, definition) })
		return nil
	}
	plurals := map[string]bool{}
	for _, resource := range sortedKeys(counted) {
		plural, _, _ := strings.Cut(resource, ".")
		if plurals[plural] {
			d.note("%s does not count: rules could not tell it from the resource with the same plural.", resource)
			continue
		}
		plurals[plural] = true
		d.scenario.resources = append(d.scenario.resources, resource)
	}
	d.scenario.manifests = d.given.without(func(definition string) bool { return counted[definition] })
	if len(d.scenario.resources) == 0 {
		return errors.New("the controller has asked for no resource: give it something to do with --manifest or --sample, and look at whether it reads {kubeconfig} or $KUBECONFIG; the end of its output:\n" + tail(e.Log()))
	}
	d.say("resources: %s", strings.Join(d.scenario.resources, ", "))
	return nil
}

// unserved returns the resources that the API server does not know, and that were asked for.
func unserved(h *history.History) (all []string) {
	for _, q := range h.Requests {
		if q.Status == http.StatusNotFound && q.Name == "" && q.Resource != "" && (q.Verb == "list" || q.Verb == "watch") && !slices.Contains(all, resourceOf(q)) {
			all = append(all, resourceOf(q))
		}
	}
	return all
}

// forbidden returns what was refused for want of permission.
func forbidden(h *history.History) (all []string) {
	for _, q := range h.Requests {
		if what := q.Verb + " " + resourceOf(q); q.Status == http.StatusForbidden && q.Resource != "" && !slices.Contains(all, what) {
			all = append(all, what)
		}
	}
	return all
}

// samplesFor returns the step that creates the samples, if there are any.
func (d *drafter) samplesFor(ctx context.Context, e *torture.Exploration) ([]torture.Step, error) {
	step := torture.Step{Name: "the samples are created"}
	for _, object := range d.given.samples {
		object = object.DeepCopy()
		if namespaced, err := e.IsNamespaced(ctx, object.GroupVersionKind()); err != nil {
			return nil, fmt.Errorf("the sample %s %s: %w; name the file with its CustomResourceDefinition with --manifest", object.GetKind(), object.GetName(), err)
		} else if namespaced && d.scenario.scope == "" {
			object.SetNamespace("") // the run's
		}
		if resource, err := e.ResourceOf(object.GroupVersionKind()); err == nil && d.given.isFound && !asksFor(e.History(), resource) {
			continue // it is for another controller
		}
		step.Do = append(step.Do, torture.Action{Apply: object.Object})
		if status, has := object.Object["status"]; has && e.HasStatus(object.GroupVersionKind()) {
			only := map[string]any{"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata": map[string]any{"name": object.GetName()}, "status": status}
			if object.GetNamespace() != "" {
				only["metadata"].(map[string]any)["namespace"] = object.GetNamespace()
			}
			delete(object.Object, "status") // which would be ignored there
			step.Do = append(step.Do, torture.Action{Apply: only, Subresource: "status"})
		}
	}
	if len(step.Do) == 0 {
		return nil, nil
	}
	return []torture.Step{step}, nil
}

// asksFor reports whether a resource was asked for.
func asksFor(h *history.History, resource string) bool {
	return slices.ContainsFunc(h.Requests, func(q history.Request) bool { return resourceOf(q) == resource })
}

// deletions returns the actions that delete what a step has applied, the last first.
func (d *drafter) deletions(e *torture.Exploration, step torture.Step) (all []torture.Action, err error) {
	for _, a := range slices.Backward(step.Do) {
		if a.Subresource != "" {
			continue
		}
		object := unstructured.Unstructured{Object: a.Apply}
		resource, err := e.ResourceOf(object.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		all = append(all, torture.Action{Delete: &torture.Reference{Resource: resource, Namespace: object.GetNamespace(), Name: object.GetName()}})
	}
	return all, nil
}

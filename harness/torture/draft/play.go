package draft

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture"
)

// The limits of what is changed: each step takes some seconds in each of many runs.
const (
	mostObjects = 4 // that the controller has made, and that others have
	mostFields  = 2 // of each
)

// player takes steps, and notes what the controller comes to.
type player struct {
	*drafter
	e       *torture.Exploration
	steps   []torture.Step
	states  []moment
	touched map[string]field // what others have changed, by its name
	objects map[target]bool  // what others have created or deleted
	mine    []target         // what the controller has written
	drifted map[string]bool  // fields that a step has changed, and that the controller has repaired
	dropped map[string]bool  // objects and fields that nobody has repaired
}

type moment struct {
	after string
	state oracle.State
}

type field struct {
	target
	path fieldPath
}

func (f field) String() string { return f.target.String() + ": " + f.path.String() }

// play runs the controller once more, this time with the resources that count, and changes one thing after the other.
func (d *drafter) play(ctx context.Context) error {
	d.say("run 2: what it comes to, and what it does if somebody changes that")
	p := &player{drafter: d, touched: map[string]field{}, objects: map[target]bool{}, drifted: map[string]bool{}, dropped: map[string]bool{}}
	return d.explore(ctx, func(ctx context.Context, e *torture.Exploration) error {
		p.e = e
		return p.playAll(ctx)
	})
}

func (p *player) playAll(ctx context.Context) error {
	if err := p.settle(ctx, "the start"); err != nil {
		return err
	}
	samples, err := p.samplesFor(ctx, p.e)
	if err != nil {
		return err
	}
	for _, step := range samples {
		for _, a := range step.Do {
			t, err := p.targetOf(a.Apply) // of an action on a status, too
			if err != nil {
				return err
			}
			p.objects[t] = true
		}
		if err := p.take(ctx, step); err != nil {
			return err
		}
	}
	if p.Meanwhile > 0 {
		if err := p.meanwhile(ctx); err != nil {
			return err
		}
	}
	p.mine = p.made()
	if err := p.drift(ctx); err != nil {
		return err
	}
	if err := p.changeInputs(ctx); err != nil {
		return err
	}
	if err := p.changeWhileDown(ctx); err != nil {
		return err
	}
	if err := p.recreate(ctx, samples); err != nil {
		return err
	}
	if err := p.checkWrites(); err != nil {
		return err
	}
	ports, err := p.e.Ports(ctx)
	if err != nil {
		return err
	}
	p.listening = slices.DeleteFunc(p.listening, func(port string) bool { return !slices.Contains(ports, port) })
	p.conclude()
	ending := p.e.Stop()
	switch {
	case ending.Problem == "":
	case ending.Status != 0:
		p.scenario.stopsWith = -1
		p.note("After SIGTERM: %s. The scenario accepts that (stopsWith).", ending.Problem)
	default:
		p.note("After SIGTERM: %s. Torture will call that a failure.", ending.Problem)
	}
	return nil
}

// checkWrites returns an error for a controller that has done nothing.
func (p *player) checkWrites() error {
	var failed []string
	for _, q := range p.e.History().Requests {
		switch {
		case !q.IsWrite() || neverCounted(q):
		case !q.Failed():
			return nil
		default:
			failed = append(failed, fmt.Sprintf("%s %s: %d", q.Verb, q.What(), q.Status))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("nothing that the controller wrote was accepted: %s", strings.Join(slices.Compact(failed), ", "))
	}
	what := "give it objects that it works on, with --sample or --manifest"
	if len(p.given.samples) > 0 {
		what = "the samples are not what it works on, or it looks for them in another namespace than " + p.e.Namespace() + " ({namespace} in a sample)"
	}
	return fmt.Errorf("the controller has written nothing, so nothing of it can be put to torture: %s; the end of its output:\n%s", what, tail(p.e.Log()))
}

// take takes a step that belongs to the scenario.
func (p *player) take(ctx context.Context, step torture.Step) error {
	if err := p.do(ctx, step); err != nil {
		return err
	}
	p.steps = append(p.steps, step)
	return nil
}

// do takes a step, waits, and notes what it came to.
func (p *player) do(ctx context.Context, step torture.Step) error {
	p.say("  %s", step.Name)
	if err := p.e.Do(ctx, step); err != nil {
		return err
	}
	return p.settle(ctx, step.Name)
}

// longestDeletion is how long objects are waited for that are being deleted. The garbage collector may learn of a resource that was only
// just defined half a minute later.
const longestDeletion = 45 * time.Second

// isDeleting reports whether an object is being deleted, or is about to be because its owner is gone.
func (p *player) isDeleting(state oracle.State) bool {
	gone := map[types.UID]bool{}
	for _, m := range p.states {
		for _, objects := range m.state {
			for _, object := range objects {
				gone[oracle.UID(object)] = true
			}
		}
	}
	for _, objects := range state {
		for _, object := range objects {
			delete(gone, oracle.UID(object))
		}
	}
	for _, objects := range state {
		for _, object := range objects {
			of := unstructured.Unstructured{Object: object}
			isOrphan := slices.ContainsFunc(of.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return gone[owner.UID] })
			if of.GetDeletionTimestamp() != nil || isOrphan {
				return true
			}
		}
	}
	return false
}

func (p *player) settle(ctx context.Context, after string) error {
	begin := time.Now()
	rested, err := p.e.Settle(ctx)
	for p.isDeleting(p.e.State()) && rested && err == nil && time.Since(begin) < longestDeletion {
		rested, err = p.e.Settle(ctx)
	}
	if err != nil {
		return p.ended(p.e, "after "+after, err)
	}
	if !rested {
		p.note("After %s, there were still writes after half a minute.", after)
	}
	p.slowest = max(p.slowest, time.Since(begin))
	p.states = append(p.states, moment{after, p.e.State()})
	p.hasOwners = p.hasOwners || hasDefinedOwner(p.e.State())
	return nil
}

// hasDefinedOwner reports whether an object has an owner of a group that is not Kubernetes' own.
func hasDefinedOwner(state oracle.State) bool {
	for _, objects := range state {
		for _, object := range objects {
			of := unstructured.Unstructured{Object: object}
			if slices.ContainsFunc(of.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
				group, _, isGrouped := strings.Cut(owner.APIVersion, "/")
				return isGrouped && strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
			}) {
				return true
			}
		}
	}
	return false
}

// forget takes the last step back.
func (p *player) forget() {
	p.steps, p.states = p.steps[:len(p.steps)-1], p.states[:len(p.states)-1]
}

func (p *player) targetOf(object oracle.Object) (target, error) {
	of := unstructured.Unstructured{Object: object}
	resource, err := p.e.ResourceOf(of.GroupVersionKind())
	return targetOf(resource, object, p.e.Namespace()), err
}

// components are the field managers of Kubernetes itself, and of what plays its nodes.
var components = []string{torture.FieldManager, "kube-controller-manager", "kube-scheduler", "kube-apiserver", "kubelet", "kwok", "controlplane", "before-first-apply"}

func isController(manager string) bool {
	return !slices.Contains(components, manager) && !isOther(manager)
}

// isOther reports whether a field manager is a person's, or ours.
func isOther(manager string) bool {
	return manager == torture.FieldManager || strings.HasPrefix(manager, "kubectl")
}

// made returns the objects that the controller has made, sorted. Those with generated names cannot be named in a scenario.
func (p *player) made() (all []target) {
	state := p.e.State()
	for _, resource := range p.scenario.resources {
		plural, _, _ := strings.Cut(resource, ".")
		for _, object := range state.List(plural) {
			t := targetOf(resource, object, p.e.Namespace())
			isNew := t.in(p.e.Before, p.e.Namespace()) == nil && !p.objects[t]
			if isNew && !isGenerated(object) && len(managed(object, isController)) > 0 && p.wrote(t) {
				all = append(all, t)
			}
		}
	}
	return all
}

// wrote reports whether the controller has written an object.
func (p *player) wrote(t target) bool {
	for _, q := range p.e.History().Requests {
		if q.IsWrite() && !q.Failed() && resourceOf(q) == t.resource && (q.Name == t.name || q.Verb == "create" && q.Name == "") {
			return true
		}
	}
	return false
}

// spread returns some targets, of as many resources as possible.
func spread(all []target, most int) (some []target) {
	for round := 0; len(some) < min(most, len(all)); round++ {
		count := map[string]int{}
		for _, t := range all {
			if count[t.resource]++; count[t.resource] == round+1 && len(some) < most {
				some = append(some, t)
			}
		}
	}
	return some
}

// drift deletes what the controller has made, and changes what it has set.
func (p *player) drift(ctx context.Context) error {
	for _, t := range spread(p.mine, mostObjects) {
		ref := t.reference()
		if err := p.driftStep(ctx, t, torture.Step{Name: "somebody deletes " + t.String(), Do: []torture.Action{{Delete: &ref}}}, nil); err != nil {
			return err
		}
		for _, path := range p.fieldsOf(t, isController, mostFields) {
			object := t.in(p.e.State(), p.e.Namespace())
			patch, ok := p.accepted(ctx, t, object, path)
			if !ok {
				continue
			}
			if err := p.driftStep(ctx, t, torture.Step{Name: "somebody changes " + field{t, path}.String(), Do: []torture.Action{{Patch: &patch}}}, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// driftStep takes a step that the controller should undo. What it does not undo is no step of the scenario.
func (p *player) driftStep(ctx context.Context, t target, step torture.Step, path fieldPath) error {
	before := t.in(p.e.State(), p.e.Namespace())
	if before == nil {
		return nil // an earlier step
	}
	if err := p.take(ctx, step); err != nil {
		return err
	}
	after := t.in(p.e.State(), p.e.Namespace())
	switch {
	case after == nil:
		p.note("Nobody repairs it when %s; it is no step of the scenario.", step.Name)
		p.dropped[t.String()] = true
		p.forget()
	case path != nil:
		was, _ := get(before, path)
		if is, _ := get(after, path); is != was {
			p.note("Nobody repairs it when %s; it is no step of the scenario.", step.Name)
			p.dropped[field{t, path}.String()] = true
			p.forget()
		} else {
			p.drifted[field{t, path}.String()] = true
		}
	}
	return nil
}

// fieldsOf returns some fields of an object that managers have set for whom is returns true.
func (p *player) fieldsOf(t target, is func(string) bool, most int) (paths []fieldPath) {
	object := t.in(p.e.State(), p.e.Namespace())
	if object == nil {
		return nil
	}
	for _, path := range managed(object, is) {
		value, _ := get(object, path)
		isPlumbing := path[0] == "status" || path[0] == "metadata" && (len(path) < 3 || path[1] != "labels" && path[1] != "annotations")
		if isPlumbing || isVolatile(path, value) || slices.Contains(path, "selector") {
			continue
		}
		paths = append(paths, path)
	}
	if len(paths) > 8 { // most of them are defaults of long lists
		paths = slices.DeleteFunc(paths, func(path fieldPath) bool { return len(path) > 5 && path[len(path)-1] != "image" })
	}
	return paths[:min(most, len(paths))]
}

// accepted returns the first patch of a field that the API server accepts.
func (p *player) accepted(ctx context.Context, t target, object oracle.Object, path fieldPath) (patch torture.Patch, ok bool) {
	for _, patch := range changes(t, object, path) {
		if p.e.Accepts(ctx, patch) == nil {
			return patch, true
		}
	}
	return patch, false
}

// inputs returns the objects that others have made, and that the controller looks at.
func (p *player) inputs() (all []target) {
	state := p.e.State()
	for _, resource := range p.scenario.resources {
		plural, _, _ := strings.Cut(resource, ".")
		for _, object := range state.List(plural) {
			t := targetOf(resource, object, p.e.Namespace())
			if len(managed(object, isOther)) > 0 && !slices.Contains(p.mine, t) && !isGenerated(object) {
				all = append(all, t)
			}
		}
	}
	return all
}

// changeInputs changes what others want.
func (p *player) changeInputs(ctx context.Context) error {
	for _, t := range spread(p.inputs(), mostObjects) {
		for _, path := range p.fieldsOf(t, isOther, mostFields) {
			object := t.in(p.e.State(), p.e.Namespace())
			if object == nil {
				break
			}
			patch, ok := p.accepted(ctx, t, object, path)
			if !ok {
				continue
			}
			if err := p.changeInput(ctx, field{t, path}, object, patch); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeInput changes one field, and takes that back if something is no longer well.
func (p *player) changeInput(ctx context.Context, f field, before oracle.Object, patch torture.Patch) error {
	well := p.countTrue()
	step := torture.Step{Name: f.String() + " changes", Do: []torture.Action{{Patch: &patch}}}
	if err := p.take(ctx, step); err != nil {
		return err
	}
	if p.countTrue() >= well {
		p.touched[f.String()] = f
		return p.changeBack(ctx, f, before, patch)
	}
	p.note("After %s, a condition was no longer True, so it has been taken back and is no step of the scenario. If the controller should be able to deal with it, add it.", step.Name)
	p.forget()
	was, _ := get(before, f.path)
	back := torture.Patch{Reference: f.reference(), Merge: merge(before, f.path, was)}
	if err := p.e.Do(ctx, torture.Step{Name: "back", Do: []torture.Action{{Patch: &back}}}); err != nil {
		return err
	}
	_, err := p.e.Settle(ctx)
	return p.ended(p.e, "after "+step.Name+" and back", err)
}

// changeBack takes a change back, if the object might not be what the controller looks for with it: its labels, its annotations, and texts
// whose meaning nobody knows.
func (p *player) changeBack(ctx context.Context, f field, before oracle.Object, patch torture.Patch) error {
	was, _ := get(before, f.path)
	is, _ := get(f.in(p.e.State(), p.e.Namespace()), f.path)
	if text, isText := is.(string); f.path[0] != "metadata" && (!isText || !strings.HasSuffix(text, "changed")) {
		return nil
	}
	patch.Merge = merge(before, f.path, was)
	return p.take(ctx, torture.Step{Name: f.String() + " changes back", Do: []torture.Action{{Patch: &patch}}})
}

// countTrue counts the conditions that are True.
func (p *player) countTrue() (count int) {
	for _, objects := range p.e.State() {
		for _, object := range objects {
			for _, name := range conditionsOf(object) {
				if status, _ := get(object, conditionPath(name)); status == "True" {
					count++
				}
			}
		}
	}
	return count
}

// changeWhileDown takes two changes that have been taken before, together, while the controller does not run.
func (p *player) changeWhileDown(ctx context.Context) error {
	step := torture.Step{Name: "while the controller is down", Do: []torture.Action{{Controller: "stop"}}}
	for _, t := range p.mine {
		name := "somebody deletes " + t.String()
		if slices.ContainsFunc(p.steps, func(s torture.Step) bool { return s.Name == name }) && t.in(p.e.State(), p.e.Namespace()) != nil {
			ref := t.reference()
			step.Do = append(step.Do, torture.Action{Delete: &ref})
			step.Name += ", " + name
			break
		}
	}
	for _, name := range sortedKeys(p.touched) {
		f := p.touched[name]
		object := f.in(p.e.State(), p.e.Namespace())
		if object == nil {
			continue
		}
		if patch, ok := p.accepted(ctx, f.target, object, f.path); ok {
			step.Do = append(step.Do, torture.Action{Patch: &patch})
			step.Name += ", " + name + " changes"
			break
		}
	}
	if len(step.Do) == 1 {
		step.Name = "the controller is restarted"
	}
	step.Do = append(step.Do, torture.Action{Controller: "start"})
	return p.take(ctx, step)
}

// recreate deletes the samples, and creates them again.
func (p *player) recreate(ctx context.Context, samples []torture.Step) error {
	for _, step := range samples {
		deletions, err := p.deletions(p.e, step)
		if err != nil {
			return err
		}
		if err := p.take(ctx, torture.Step{Name: "the samples are deleted", Do: deletions}); err != nil {
			return err
		}
		if left := p.left(); left != "" {
			p.note("Half a minute after the samples were deleted, %s was still there, so they are not created again.", left)
			continue
		}
		if err := p.take(ctx, torture.Step{Name: "the samples are created again", Do: step.Do}); err != nil {
			return err
		}
	}
	return nil
}

// left returns a sample that is still there, or "".
func (p *player) left() string {
	for t := range p.objects {
		if t.in(p.states[len(p.states)-1].state, p.e.Namespace()) != nil {
			return t.String()
		}
	}
	return ""
}

// conclude makes rules of what has been seen.
func (p *player) conclude() {
	home := p.e.Namespace()
	for _, m := range p.states {
		s := settled{after: m.after, state: m.state, home: home}
		made := outputs{}
		for t := range p.objects {
			if p.isTouched(t) && t.in(m.state, home) != nil || !slices.Contains(p.scenario.resources, t.resource) {
				continue // its field says more, or rules cannot see it
			}
			s.inputs = append(s.inputs, join([]output{existence(t, m.state, home)})...)
		}
		for _, f := range p.touched {
			if object := f.in(m.state, home); object != nil {
				if value, ok := get(object, f.path); ok {
					s.inputs = append(s.inputs, f.exists(rule(variable, f.path, value)))
				}
			}
		}
		slices.Sort(s.inputs)
		for _, t := range p.mine {
			if p.dropped[t.String()] {
				continue
			}
			made[t.String()] = existence(t, m.state, home)
			p.addFields(made, t, m.state)
		}
		for _, t := range p.inputs() {
			p.addFields(made, t, m.state) // such as its status
		}
		for _, resource := range p.scenario.resources {
			plural, _, _ := strings.Cut(resource, ".")
			if p.areInputs(plural) {
				continue
			}
			n := len(m.state[plural])
			made["size of "+plural] = output{value: n, holds: count(plural, n).rule}
		}
		p.history, p.outputs = append(p.history, s), append(p.outputs, made)
	}
	var states []oracle.State
	for _, s := range p.history {
		states = append(states, s.state)
	}
	for _, resource := range p.scenario.resources {
		p.scenario.converged = append(p.scenario.converged, health(resource, states)...)
		plural, _, _ := strings.Cut(resource, ".")
		if n := len(p.e.Before[plural]); n > 0 {
			p.scenario.ready = append(append(p.scenario.ready, count(plural, n)), health(resource, []oracle.State{p.e.Before})...)
		}
	}
	for _, c := range p.scenario.converged {
		for _, made := range p.outputs {
			maps.DeleteFunc(made, func(_ string, o output) bool { return o.holds != "" && strings.Contains(c.rule, o.holds) }) // it says so of all
		}
	}
	always, whenever, unsure := outcomes(p.history, p.outputs)
	p.scenario.converged = append(append(p.scenario.converged, always...), whenever...)
	for _, what := range unsure {
		p.note("No rule looks at %s: it was not the same at two times at which everything that others have set was.", what)
	}
	if len(p.scenario.converged) == 0 {
		p.note("No rule held each time that the controller had nothing left to do. Say under \"converged\" when it has done its job.")
		p.scenario.converged = []condition{{rule: "true"}}
	}
	p.scenario.steps = p.steps
	p.scenario.namespace = home
}

// isVersion reports whether a value is the resourceVersion that an object has had.
func (p *player) isVersion(value any) bool {
	text, is := value.(string)
	if !is || text == "" {
		return false
	}
	for _, m := range p.states {
		for _, objects := range m.state {
			for _, object := range objects {
				if version, _ := get(object, fieldPath{"metadata", "resourceVersion"}); version == text {
					return true
				}
			}
		}
	}
	return false
}

// isTouched reports whether others have changed a field of an object.
func (p *player) isTouched(t target) bool {
	for _, f := range p.touched {
		if f.target == t {
			return true
		}
	}
	return false
}

// areInputs reports whether all objects of a resource were made by others than the controller, under names of their own.
func (p *player) areInputs(plural string) bool {
	for _, m := range p.states {
		for _, object := range m.state[plural] {
			if isGenerated(object) || len(managed(object, isOther)) == 0 {
				return false
			}
		}
	}
	return true
}

// addFields adds the fields of an object that the controller sets.
func (p *player) addFields(made outputs, t target, state oracle.State) {
	object := t.in(state, p.e.Namespace())
	if object == nil {
		return
	}
	for _, path := range managed(object, isController) {
		name := field{t, path}.String()
		value, _ := get(object, path)
		isSecret := t.plural() == "secrets" && (path[0] == "data" || path[0] == "stringData")
		_, isInput := p.touched[name]
		isVersion := p.isVersion(value)
		if p.dropped[name] || isVersion || isSecret || isInput || isVolatile(path, value) || path[0] == "metadata" && path[1] != "labels" && path[1] != "annotations" {
			continue
		}
		made[name] = output{value, t, rule(variable, path, value), path[0] != "status" && !p.drifted[name]}
	}
}

// existence returns whether an object exists and is not being deleted.
func existence(t target, state oracle.State, home string) output {
	object := t.in(state, home)
	of := unstructured.Unstructured{Object: object}
	return output{value: object != nil && of.GetDeletionTimestamp() == nil, of: t}
}

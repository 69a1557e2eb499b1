package draft

import (
	"context"
	"slices"
	"strings"

	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture"
)

// The limits of what is changed: each step takes some seconds in each of many runs.
const (
	mostObjects = 4 // that the controller has made, and that others have
	mostFields  = 2 // of each
)

// targets returns the objects whose names are known before a run, and for which keep returns true, sorted.
func (p *player) targets(keep func(target, oracle.Object) bool) (all []target) {
	state := p.e.State()
	for _, resource := range p.scenario.resources {
		plural, _, _ := strings.Cut(resource, ".")
		for _, object := range state.List(plural) {
			if t := targetOf(resource, object, p.e.Namespace()); !isGenerated(object) && keep(t, object) {
				all = append(all, t)
			}
		}
	}
	return all
}

// made returns the objects that the controller has made.
func (p *player) made() []target {
	return p.targets(func(t target, object oracle.Object) bool {
		isNew := t.in(p.e.Before, p.e.Namespace()) == nil && !p.objects[t]
		return isNew && len(managed(object, isController)) > 0 && p.wrote(t)
	})
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
func (p *player) inputs() []target {
	return p.targets(func(t target, object oracle.Object) bool {
		return len(managed(object, isOther)) > 0 && !slices.Contains(p.mine, t)
	})
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
	if f.in(p.e.State(), p.e.Namespace()) == nil {
		return nil
	}
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
	now := f.in(p.e.State(), p.e.Namespace())
	if now == nil { // the controller has deleted it
		return nil
	}
	was, _ := get(before, f.path)
	is, _ := get(now, f.path)
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

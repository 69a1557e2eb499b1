package draft

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/controllers/harness/oracle"
)

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
					s.inputs = append(s.inputs, f.wants(value))
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
		_, isInput := p.touched[name]
		isVersion := p.isVersion(value)
		if p.dropped[name] || isVersion || isSecret(t, path) || isInput || isVolatile(path, value) || path[0] == "metadata" && path[1] != "labels" && path[1] != "annotations" {
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

package draft

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture"
)

// meanwhile makes steps of what a person does with kubectl.
func (p *player) meanwhile(ctx context.Context) (err error) {
	visitor, err := p.e.Admit(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if leaveErr := visitor.Leave(); err == nil {
			err = leaveErr
		}
	}()
	p.say("for %s, what you change becomes steps; in another terminal: export KUBECONFIG=%s", p.Meanwhile, visitor.Kubeconfig)
	done := 0
	for begin := time.Now(); time.Since(begin) < p.Meanwhile; {
		rested, err := p.e.Settle(ctx) // takes a while
		if err != nil {
			return p.ended(p.e, "after what you have done", err)
		}
		all := visitor.Written()
		if len(all) == done {
			continue
		}
		step := torture.Step{}
		var words []string
		for _, w := range all[done:] {
			action, problem := actionOf(w, p.e.Namespace())
			if problem != "" {
				p.note("%s %s %s is no step: %s.", w.Verb, w.Resource, w.Name, problem)
				continue
			}
			step.Do = append(step.Do, action)
			words = append(words, fmt.Sprintf("%s %s %s", w.Verb, w.Resource, w.Name))
			p.noteInput(w)
		}
		done = len(all)
		if len(step.Do) == 0 {
			continue
		}
		if !rested {
			p.note("After %s, there were still writes after half a minute.", strings.Join(words, ", "))
		}
		step.Name = "you " + strings.Join(words, ", ")
		p.say("  %s", step.Name)
		p.steps = append(p.steps, step)
		p.states = append(p.states, moment{step.Name, p.e.State()})
	}
	if done == 0 {
		p.note("Nothing was changed with kubectl in %s.", p.Meanwhile)
	}
	return nil
}

// noteInput notes that a rule may depend on what was changed.
func (p *player) noteInput(w torture.Written) {
	t := target{w.Resource, w.Namespace, w.Name}
	if t.namespace == p.e.Namespace() {
		t.namespace = ""
	}
	if w.Verb != "delete" && w.Old == nil || w.Verb == "delete" && t.in(p.e.Before, p.e.Namespace()) != nil {
		p.objects[t] = true
	}
	isInput := p.objects[t] || t.in(p.e.Before, p.e.Namespace()) != nil // and not of the controller
	if w.Old == nil || w.New == nil || !isInput {
		return
	}
	for _, path := range managed(w.New, func(string) bool { return true }) {
		was, _ := get(w.Old, path)
		if is, _ := get(w.New, path); is != was && path[0] != "status" && !isVolatile(path, is) {
			p.touched[field{t, path}.String()] = field{t, path}
		}
	}
}

// actionOf returns the action that does what somebody has done, or why there is none.
func actionOf(w torture.Written, home string) (action torture.Action, problem string) {
	reference := torture.Reference{Resource: w.Resource, Namespace: w.Namespace, Name: w.Name}
	if reference.Namespace == home {
		reference.Namespace = ""
	}
	switch {
	case w.Verb == "delete":
		return torture.Action{Delete: &reference}, ""
	case w.New == nil:
		return action, "the controller does not ask for this resource"
	case w.Resource == "secrets":
		return action, "the values of Secrets stay out of scenarios; put it into a manifest"
	case w.Old == nil:
		return torture.Action{Apply: asWritten(w.New, home)}, ""
	}
	subresource := w.Subresource
	if subresource == "scale" { // it changes the object
		subresource = ""
	}
	old, new := plain(w.Old, subresource), plain(w.New, subresource)
	oldText, err := json.Marshal(old)
	if err != nil {
		return action, err.Error()
	}
	newText, err := json.Marshal(new)
	if err != nil {
		return action, err.Error()
	}
	text, err := jsonpatch.CreateMergePatch(oldText, newText)
	if err != nil {
		return action, err.Error()
	}
	patch := torture.Patch{Reference: reference}
	if err := json.Unmarshal(text, &patch.Merge); err != nil {
		return action, err.Error()
	}
	if len(patch.Merge) == 0 {
		return action, "it has changed nothing that a scenario would change"
	}
	return torture.Action{Patch: &patch, Subresource: subresource}, ""
}

// asWritten returns an object as a person would write it: as kubectl has applied it, or else without what the API server has added.
func asWritten(object oracle.Object, home string) map[string]any {
	of := unstructured.Unstructured{Object: object}
	written := map[string]any{}
	if json.Unmarshal([]byte(of.GetAnnotations()[corev1.LastAppliedConfigAnnotation]), &written) != nil {
		written = plain(object, "")
	}
	result := unstructured.Unstructured{Object: written}
	result.SetAnnotations(withoutKey(result.GetAnnotations(), corev1.LastAppliedConfigAnnotation))
	if result.GetNamespace() == home {
		result.SetNamespace("")
	}
	return result.Object
}

// plain returns the part of an object that a write to it, or to its status, is about.
func plain(object oracle.Object, subresource string) map[string]any {
	copied := (&unstructured.Unstructured{Object: object}).DeepCopy()
	if subresource != "" {
		return map[string]any{subresource: copied.Object[subresource]}
	}
	for _, key := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(copied.Object, "metadata", key)
	}
	unstructured.RemoveNestedField(copied.Object, "status")
	copied.SetAnnotations(withoutKey(copied.GetAnnotations(), corev1.LastAppliedConfigAnnotation))
	return copied.Object
}

func withoutKey(all map[string]string, key string) map[string]string {
	delete(all, key)
	if len(all) == 0 {
		return nil
	}
	return all
}

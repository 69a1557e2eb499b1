package draft

import (
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/torture"
)

// outline is a scenario that is being written.
type outline struct {
	manifests []string
	account   string
	scope     string
	resources []string
	ready     []condition
	steps     []torture.Step
	converged []condition
	patience  time.Duration // 0 for the usual one
	mayDiffer torture.MayDiffer
	stopsWith int
	namespace string // of the run that it was seen in
}

// section is a part of the file: a top-level key with its comment.
type section struct{ key, text string }

// sections returns the parts of the scenario's file. path is how the scenario names a manifest.
func (o outline) sections(path func(string) string) (all sections) {
	add := func(key, comment, body string) {
		all = append(all, section{key, "# " + strings.ReplaceAll(comment, "\n", "\n# ") + "\n" + body})
	}
	if len(o.manifests) > 0 {
		body := "manifests:\n"
		for _, m := range o.manifests {
			body += "- " + scalar(path(m)) + "\n"
		}
		add("manifests", "Applied before the controller starts.", body)
	}
	if o.account != "" {
		add("account", "The ServiceAccount with whose rights the controller runs.", "account: "+scalar(o.account)+"\n")
	}
	if o.scope != "" {
		add("scope", "Each run has a control plane of its own, because not all objects are in its namespace.", "scope: "+o.scope+"\n")
	}
	add("resources", "What rules can name, and what is compared with the runs without a fault: what the controller has asked for.", "resources: ["+strings.Join(o.resources, ", ")+"]\n")
	if len(o.ready) > 0 {
		add("ready", "Must hold before the controller starts.", "ready:\n"+o.rules(o.ready))
	}
	if o.steps != nil {
		body := "steps:\n"
		for _, s := range o.steps {
			body += "- name: " + scalar(o.here(s.Name)) + "\n  do:\n"
			for _, a := range s.Do {
				body += indent(o.action(a), "  ")
			}
		}
		add("steps", "What happens while the controller runs. Add what happens to it where you run it.", body)
	}
	add("converged", "Holds when the controller has done its job. This is what was seen after the steps; say in your own words what is right.\nThe controller may be right in another way, and what was seen may be wrong.", "converged:\n"+o.rules(o.converged))
	if o.patience > 0 {
		add("patience", "For how long the controller may take to converge, faults included. The garbage collector may need half a minute for a new resource.", "patience: "+o.patience.String()+"\n")
	}
	if o.stopsWith != 0 {
		add("stopsWith", "Any exit status is right after SIGTERM.", fmt.Sprintf("stopsWith: %d\n", o.stopsWith))
	}
	if m := o.mayDiffer; len(m.Fields)+len(m.Names)+len(m.Writes) > 0 {
		add("mayDiffer", "What differed between runs without faults. What must not differ is a bug: take it out of here.", marshal(map[string]any{"mayDiffer": m}))
	}
	return all
}

// rules returns conditions, each && in a line of its own.
func (o outline) rules(all []condition) (text string) {
	for _, c := range all {
		text += "- rule: >-\n    " + o.here(strings.ReplaceAll(c.rule, " && ", " &&\n    ")) + "\n"
		if c.message != "" {
			text += "  message: >-\n    " + o.here(c.message) + "\n"
		}
	}
	return text
}

// here replaces the namespace of the run that something was seen in.
func (o outline) here(text string) string {
	if o.namespace == "" || o.scope != "" {
		return text
	}
	return strings.ReplaceAll(text, o.namespace, "{namespace}")
}

// hereIn replaces the namespace in all texts of a value, so that those are quoted that need it.
func (o outline) hereIn(value any) any {
	switch value := value.(type) {
	case string:
		return o.here(value)
	case map[string]any:
		replaced := map[string]any{}
		for key, of := range value {
			replaced[o.here(key)] = o.hereIn(of)
		}
		return replaced
	case []any:
		var replaced []any
		for _, of := range value {
			replaced = append(replaced, o.hereIn(of))
		}
		return replaced
	}
	return value
}

// action returns the YAML of an action.
func (o outline) action(a torture.Action) string {
	switch {
	case a.Apply != nil:
		rest := o.hereIn(a.Apply).(map[string]any)
		text := "- apply:\n"
		for _, key := range []string{"apiVersion", "kind", "metadata"} { // as people write it
			if rest[key] != nil {
				text += indent(marshal(map[string]any{key: rest[key]}), "    ")
				delete(rest, key)
			}
		}
		if len(rest) > 0 {
			text += indent(marshal(rest), "    ")
		}
		if a.Subresource != "" {
			text += "  subresource: " + a.Subresource + "\n"
		}
		return text
	case a.Patch != nil:
		text := "- patch:\n" + o.reference(a.Patch.Reference) + "    merge:\n" + indent(marshal(o.hereIn(a.Patch.Merge)), "      ")
		if a.Subresource != "" {
			text += "  subresource: " + a.Subresource + "\n"
		}
		return text
	case a.Delete != nil:
		return "- delete:\n" + o.reference(*a.Delete)
	}
	return "- controller: " + a.Controller + "\n"
}

func (o outline) reference(r torture.Reference) string {
	text := "    resource: " + r.Resource + "\n    name: " + scalar(o.here(r.Name)) + "\n"
	if r.Namespace != "" {
		text += "    namespace: " + scalar(o.here(r.Namespace)) + "\n"
	}
	return text
}

// marshal returns YAML for what consists of maps, lists and scalars.
func marshal(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(text)
}

// scalar returns the YAML of a text in one line.
func scalar(text string) string {
	if plain := strings.TrimSuffix(marshal(text), "\n"); plain == text {
		return plain
	}
	return literal(text) // of JSON, as YAML has it too
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

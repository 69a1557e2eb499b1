package draft

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/controllers/harness/oracle"
)

// settled is the state of the cluster when the controller had nothing left to do.
type settled struct {
	after  string // the step before it
	state  oracle.State
	home   string   // the namespace of the run
	inputs []string // rules that say what others want, sorted
}

// condition is a rule of the scenario, and what it is good for.
type condition struct {
	rule, message string // message is a CEL expression, or ""
}

// health returns a rule on all objects of a resource that held in all of these states and says that they are well: none is being deleted, none
// is behind its spec, all are in the same phase, and the same conditions are True, or False. There is none if there are no objects.
func health(resource string, states []oracle.State) (all []condition) {
	plural, _, _ := strings.Cut(resource, ".")
	var objects []unstructured.Unstructured
	for _, state := range states {
		for _, object := range state[plural] {
			objects = append(objects, unstructured.Unstructured{Object: object})
		}
	}
	if len(objects) == 0 {
		return nil
	}
	every := func(is func(unstructured.Unstructured) bool) bool {
		return !slices.ContainsFunc(objects, func(o unstructured.Unstructured) bool { return !is(o) })
	}
	has := func(path fieldPath, value any) bool {
		return every(func(o unstructured.Unstructured) bool {
			other, ok := get(o.Object, path)
			return ok && other == value
		})
	}
	var holds, words []string
	if every(func(o unstructured.Unstructured) bool { return o.GetDeletionTimestamp() == nil }) {
		holds = append(holds, "!has("+variable+".metadata.deletionTimestamp)")
	}
	if every(func(o unstructured.Unstructured) bool {
		generation, ok := get(o.Object, fieldPath{"status", "observedGeneration"})
		return ok && fmt.Sprint(generation) == fmt.Sprint(o.GetGeneration())
	}) {
		holds = append(holds, fmt.Sprintf("%s.?status.?observedGeneration.orValue(0) == %[1]s.metadata.generation", variable))
	}
	phase := fieldPath{"status", "phase"}
	if value, ok := get(objects[0].Object, phase); ok && has(phase, value) {
		holds, words = append(holds, rule(variable, phase, value)), append(words, fmt.Sprint(value))
	}
	for _, name := range conditionsOf(objects[0].Object) {
		status, _ := get(objects[0].Object, conditionPath(name))
		isDetail := plural == "pods" && name != "Ready" // Ready includes them
		if status == "Unknown" || isDetail || !has(conditionPath(name), status) {
			continue
		}
		holds = append(holds, rule(variable, conditionPath(name), status))
		if status == "True" {
			words = append(words, name)
		} else {
			words = append(words, "not "+name)
		}
	}
	if len(holds) == 0 {
		return nil
	}
	message := "one of the " + plural + " is still being deleted, or its status is not of its spec"
	switch {
	case len(words) > 0:
		message = "not all " + plural + " are " + strings.Join(words, " and ")
	case len(holds) == 1:
		message = "one of the " + plural + " is still being deleted"
	}
	return []condition{{fmt.Sprintf("%s.all(%s, %s)", plural, variable, strings.Join(holds, " && ")), literal(message)}}
}

// conditionPath leads to the status of a condition.
func conditionPath(name string) fieldPath {
	return fieldPath{"status", "conditions", `k:{"type":` + literal(name) + `}`, "status"}
}

// conditionsOf returns the types of the conditions of an object.
func conditionsOf(object oracle.Object) (types []string) {
	list, _ := get(object, fieldPath{"status", "conditions"})
	conditions, _ := list.([]any)
	for _, one := range conditions {
		if name, ok := get(one, fieldPath{"type"}); ok {
			types = append(types, fmt.Sprint(name))
		}
	}
	slices.Sort(types)
	return types
}

// count returns a rule on how many objects of a resource there are.
func count(plural string, n int) condition {
	return condition{fmt.Sprintf("size(%s) == %d", plural, n), fmt.Sprintf(`"there are " + string(size(%s)) + " %[1]s; there should be %d"`, plural, n)}
}

// outputs are what a controller has made of what others want, by name.
type outputs map[string]output

// output is one thing that a rule can look at: whether an object exists, the value of one of its fields, or how many objects there are.
type output struct {
	value any    // to be compared; nil if there is none
	of    target // zero if it is not of one object
	// holds is the rule that says so: of an object, the part of it that is true for its field; "" for its existence.
	holds string
	// isMinor says that it need not be said if it is always so: nobody has changed it.
	isMinor bool
}

// outcomes returns what the controller should come to: what always holds when it has nothing to do, and what holds whenever others want
// something. history are all such states, made is what the controller had made in each. unsure are those of the outputs that were not the
// same each time.
func outcomes(history []settled, made []outputs) (always, whenever []condition, unsure []string) {
	names := map[string]bool{}
	for _, o := range made {
		for name := range o {
			names[name] = true
		}
	}
	groups := map[string][]int{} // states with the same inputs
	var order []string
	for i, s := range history {
		key := strings.Join(s.inputs, "\n")
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], i)
	}
	constant, implied := []output{}, map[string][]output{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		isConstant, isFunction := true, true
		known := output{}
		for i := range made {
			one := made[i][name]
			if known.value == nil {
				known = one
			}
			isConstant = isConstant && one.value != nil && one.value == known.value
		}
		if !isConstant && isOfObject(known, name, history, made) {
			if !known.isMinor {
				always = append(always, condition{rule: known.of.ifExists(known.holds)})
			}
			continue
		}
		if isConstant && known.isMinor {
			continue
		}
		for _, of := range groups {
			for _, i := range of {
				isFunction = isFunction && made[i][name].value == made[of[0]][name].value
			}
		}
		switch {
		case isConstant:
			constant = append(constant, made[0][name])
		case !isFunction:
			unsure = append(unsure, name)
		default:
			for key, of := range groups {
				if one := made[of[0]][name]; one.value != nil {
					implied[key] = append(implied[key], one)
				}
			}
		}
	}
	for _, rule := range join(constant) {
		always = append(always, condition{rule: rule})
	}
	for _, key := range order {
		then := join(implied[key])
		if len(then) == 0 {
			continue
		}
		first := history[groups[key][0]]
		whenever = append(whenever, condition{
			rule:    strings.Join(first.inputs, " && ") + " ?\n    " + strings.Join(then, " && ") + " : true",
			message: literal("it is not as it was after this: " + first.after),
		})
	}
	return always, whenever, unsure
}

// isOfObject reports whether a field has the same value whenever its object exists.
func isOfObject(known output, name string, history []settled, made []outputs) bool {
	if known.of == (target{}) || known.holds == "" {
		return false
	}
	for i := range made {
		one := made[i][name]
		if exists := known.of.in(history[i].state, history[i].home) != nil; exists && one.value != known.value {
			return false
		}
	}
	return true
}

// join returns the rules of outputs, a single one for each object.
func join(all []output) (rules []string) {
	fields := map[target][]string{}
	var order []target
	for _, o := range all {
		if o.of == (target{}) {
			rules = append(rules, o.holds)
			continue
		}
		if _, known := fields[o.of]; !known {
			order = append(order, o.of)
			fields[o.of] = nil
		}
		if o.holds != "" && o.value != false {
			fields[o.of] = append(fields[o.of], o.holds)
		}
	}
	gone := map[target]bool{}
	for _, o := range all {
		gone[o.of] = gone[o.of] || o.value == false && o.holds == ""
	}
	for _, t := range order {
		if gone[t] {
			rules = append(rules, "!"+t.exists())
		} else {
			rules = append(rules, t.exists(fields[t]...))
		}
	}
	return rules
}

package inmemory

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// mostChanges is how many changes of one event are named, and longestValue how much of a value is shown.
const (
	mostChanges  = 3
	longestValue = 24
)

// describe says in a few words in what two versions of an object differ, such as "Ready: Unknown" or "annotation owner removed".
// Of a Secret's data, it names only the keys.
func describe(old, object Object) string {
	var changes []string
	note := func(format string, args ...any) { changes = append(changes, fmt.Sprintf(format, args...)) }
	if metadata(old, "deletionTimestamp") == "" && metadata(object, "deletionTimestamp") != "" {
		note("is being deleted")
	}
	before, after := part(old, "metadata"), part(object, "metadata")
	for _, field := range []string{"labels", "annotations"} {
		kind := strings.TrimSuffix(field, "s")
		each(part(before, field), part(after, field), func(name string, _, now any) {
			_, short, isQualified := strings.Cut(name, "/")
			if !isQualified {
				short = name
			}
			switch now {
			case nil:
				note("%s %s removed", kind, short)
			case "":
				note("%s %s", kind, short)
			default:
				note("%s %s=%s", kind, short, brief(now))
			}
		})
	}
	if !reflect.DeepEqual(before["finalizers"], after["finalizers"]) {
		note("finalizers: %s", brief(after["finalizers"]))
	}
	conditions(old, object, note)
	for _, field := range slices.Sorted(maps.Keys(union(old, object))) {
		switch field {
		case "metadata", "kind", "apiVersion":
		case "data":
			each(part(old, field), part(object, field), func(key string, _, now any) {
				switch {
				case now == nil:
					note("data.%s removed", key)
				case object["kind"] == "Secret":
					note("data.%s", key)
				default:
					note("data.%s: %s", key, brief(now))
				}
			})
		default:
			describeFields(field, old[field], object[field], note)
		}
	}
	if len(changes) > mostChanges {
		changes = append(changes[:mostChanges-1], fmt.Sprintf("and %d more changes", len(changes)-mostChanges+1))
	}
	return strings.Join(changes, ", ")
}

// conditions notes those whose status has changed.
func conditions(old, object Object, note func(string, ...any)) {
	statuses := func(object Object) map[string]any {
		found := map[string]any{}
		list, _ := part(object, "status")["conditions"].([]any)
		for _, one := range list {
			if condition, ok := one.(Object); ok {
				found[fmt.Sprint(condition["type"])] = condition["status"]
			}
		}
		return found
	}
	each(statuses(old), statuses(object), func(kind string, _, now any) {
		if now == nil {
			now = "removed"
		}
		note("%s: %v", kind, now)
	})
}

// describeFields notes the fields at a path that differ.
func describeFields(path string, old, now any, note func(string, ...any)) {
	before, wasObject := old.(Object)
	after, isObject := now.(Object)
	const deepest = 3 // elements of a path
	switch {
	case reflect.DeepEqual(old, now), path == "status.conditions":
	case (wasObject || old == nil) && (isObject || now == nil) && strings.Count(path, ".") < deepest-1:
		each(before, after, func(name string, old, now any) { describeFields(path+"."+name, old, now, note) })
	case now == nil:
		note("%s removed", path)
	default:
		note("%s: %s", path, brief(now))
	}
}

// each calls differs with what two objects have differently, in the order of the names; nil stands for nothing.
func each(old, now Object, differs func(name string, old, now any)) {
	for _, name := range slices.Sorted(maps.Keys(union(old, now))) {
		if !reflect.DeepEqual(old[name], now[name]) {
			differs(name, old[name], now[name])
		}
	}
}

func union(a, b Object) Object {
	all := maps.Clone(a)
	if all == nil {
		all = Object{}
	}
	maps.Copy(all, b)
	return all
}

// part returns an object in an object; nil if there is none.
func part(object Object, field string) Object {
	found, _ := object[field].(Object)
	return found
}

// brief returns the beginning of a value.
func brief(value any) string {
	text := fmt.Sprint(value)
	if list, ok := value.([]any); ok && len(list) == 0 || value == nil {
		text = "none"
	}
	return ansi.Truncate(strings.ReplaceAll(text, "\n", " "), longestValue, "…")
}

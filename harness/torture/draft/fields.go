package draft

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture"
)

// fieldPath leads to a value in an object: keys of maps, and items of lists as managedFields write them, such as k:{"name":"web"}.
type fieldPath []string

func (p fieldPath) String() string {
	var text strings.Builder
	for i, part := range p {
		switch keys, isItem := itemKeys(part); {
		case isItem:
			var is []string
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				is = append(is, fmt.Sprint(keys[key]))
			}
			fmt.Fprintf(&text, "[%s]", strings.Join(is, ","))
		case identifier.MatchString(part):
			if i > 0 {
				text.WriteByte('.')
			}
			text.WriteString(part)
		default:
			fmt.Fprintf(&text, "[%q]", part)
		}
	}
	return text.String()
}

// itemKeys returns the keys by which an item of a list is known.
func itemKeys(part string) (keys map[string]any, isItem bool) {
	data, isItem := strings.CutPrefix(part, "k:")
	if !isItem || json.Unmarshal([]byte(data), &keys) != nil {
		return nil, false
	}
	return keys, true
}

// item returns where in a list an item is, or -1.
func item(list []any, keys map[string]any) int {
	return slices.IndexFunc(list, func(one any) bool {
		values, is := one.(map[string]any)
		for key, want := range keys {
			is = is && fmt.Sprint(values[key]) == fmt.Sprint(want)
		}
		return is
	})
}

// get returns the value at a path, if there is one.
func get(value any, path fieldPath) (found any, ok bool) {
	for _, part := range path {
		switch in := value.(type) {
		case map[string]any:
			if value, ok = in[part]; !ok {
				return nil, false
			}
		case []any:
			keys, isItem := itemKeys(part)
			at := item(in, keys)
			if !isItem || at < 0 {
				return nil, false
			}
			value = in[at]
		default:
			return nil, false
		}
	}
	return value, true
}

// merge returns the JSON merge patch that sets the value at a path of an object. A list on the way is written as a whole.
func merge(object oracle.Object, path fieldPath, to any) map[string]any {
	patch := map[string]any{}
	at, from := patch, any(object)
	for i, part := range path {
		value, _ := get(from, fieldPath{part})
		if i == len(path)-1 {
			at[part] = to
			break
		}
		if list, isList := value.([]any); isList {
			changed := (&unstructured.Unstructured{Object: map[string]any{"list": list}}).DeepCopy().Object
			set(changed, append(fieldPath{"list"}, path[i+1:]...), to)
			at[part] = changed["list"]
			break
		}
		next := map[string]any{}
		at[part], at, from = next, next, value
	}
	return patch
}

// set changes the value at a path, which exists.
func set(object map[string]any, path fieldPath, to any) {
	parent, _ := get(object, path[:len(path)-1])
	if in, is := parent.(map[string]any); is {
		in[path[len(path)-1]] = to
	}
}

// managed returns the paths of the single values in an object that managers have set for whom is returns true, in order: its spec first.
func managed(object oracle.Object, is func(manager string) bool) (paths []fieldPath) {
	of := unstructured.Unstructured{Object: object}
	for _, entry := range of.GetManagedFields() {
		if !is(entry.Manager) || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil {
			paths = append(paths, leaves(nil, fields)...)
		}
	}
	paths = slices.DeleteFunc(paths, func(p fieldPath) bool {
		value, ok := get(object, p)
		return !ok || !isScalar(value) || isKey(p)
	})
	slices.SortStableFunc(paths, func(a, b fieldPath) int { return strings.Compare(a.order(), b.order()) })
	return slices.CompactFunc(paths, func(a, b fieldPath) bool { return a.String() == b.String() })
}

// order sorts what people change most often first, and labels and annotations last.
func (p fieldPath) order() string {
	switch last := p[len(p)-1]; {
	case p[0] == "metadata":
		return "~" + p.String()
	case last == "image" || last == "replicas":
		return "!" + p.String()
	}
	return p.String()
}

func leaves(path fieldPath, fields map[string]any) (paths []fieldPath) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		below, is := fields[key].(map[string]any)
		name, isField := strings.CutPrefix(key, "f:")
		switch {
		case !is || key == "." || !isField && !strings.HasPrefix(key, "k:"):
		case !isField:
			paths = append(paths, leaves(append(slices.Clone(path), key), below)...)
		case len(below) == 0:
			paths = append(paths, append(slices.Clone(path), name))
		default:
			paths = append(paths, leaves(append(slices.Clone(path), name), below)...)
		}
	}
	return paths
}

func isScalar(value any) bool {
	switch value.(type) {
	case string, bool, int64, float64:
		return true
	}
	return false
}

// others returns values of the same type that a field might have as well, the most harmless first. What the schema does not allow, the API
// server refuses.
func others(value any) []any {
	switch value := value.(type) {
	case bool:
		return []any{!value}
	case int64:
		return []any{value + 1, value - 1}
	case float64:
		return []any{value + 1, value - 1}
	case string:
		var all []any
		if at := number.FindAllStringIndex(value, -1); at != nil { // of a version, an address, a quantity
			from, to := at[len(at)-1][0], at[len(at)-1][1]
			if n, err := strconv.Atoi(value[from:to]); err == nil {
				all = append(all, value[:from]+strconv.Itoa(n+1)+value[to:])
			}
		}
		return append(all, value+"-changed", "changed")
	}
	return nil
}

var number = regexp.MustCompile(`\d+`)

// isKey reports whether a field is what an item of a list is known by.
func isKey(path fieldPath) bool {
	if len(path) < 2 {
		return false
	}
	keys, isItem := itemKeys(path[len(path)-2])
	_, is := keys[path[len(path)-1]]
	return isItem && is
}

// isVolatile reports whether the value of a field is of its time, or made up by chance.
func isVolatile(path fieldPath, value any) bool {
	last := path[len(path)-1]
	switch last {
	case corev1.LastAppliedConfigAnnotation: // it has the whole object in it, a Secret too
		return true
	case "message", "reason", "observedGeneration", "uid", "resourceVersion", "restartCount":
		return true
	}
	if strings.HasSuffix(last, "Time") || strings.HasSuffix(last, "Timestamp") || strings.HasSuffix(last, "IP") {
		return true
	}
	text, is := value.(string)
	return is && (len(text) > longestValue || changing.MatchString(text))
}

// longestValue is how long a text in a rule may be. A person has to read it.
const longestValue = 80

// changing matches UUIDs, times and hashes.
var changing = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-|\d{4}-\d{2}-\d{2}T|^[0-9a-f]{32,}$`)

var identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// reserved are the words that CEL does not take for the name of a field.
var reserved = []string{"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop", "namespace", "null", "package", "return", "true", "var", "void", "while"}

// rule returns a CEL expression that holds if the value at a path of a variable is this one.
func rule(variable string, path fieldPath, value any) string {
	var text strings.Builder
	text.WriteString(variable)
	missing := "null"
	for i, part := range path {
		keys, isItem := itemKeys(part)
		if isItem {
			item := string(variable[0] + 1) // another name at each depth
			var is []string
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				is = append(is, rule(item, fieldPath{key}, keys[key]))
			}
			fmt.Fprintf(&text, ".orValue([]).exists(%s, %s)", item, strings.Join(append(is, rule(item, path[i+1:], value)), " && "))
			return text.String()
		}
		if identifier.MatchString(part) && !slices.Contains(reserved, part) {
			text.WriteString(".?" + part)
		} else {
			text.WriteString("[?" + literal(part) + "]")
			missing = "dyn(null)" // after an index, the checker takes null for the type of the value
		}
	}
	return text.String() + ".orValue(" + missing + ") == " + literal(value)
}

// literal returns a value as CEL writes it.
func literal(value any) string {
	switch value := value.(type) {
	case string:
		return strconv.Quote(value)
	case float64:
		if value == float64(int64(value)) {
			return fmt.Sprint(int64(value))
		}
	}
	return fmt.Sprint(value)
}

// isSecret reports whether the value of a field is nobody's business.
func isSecret(of target, path fieldPath) bool {
	return of.plural() == "secrets" && (path[0] == "data" || path[0] == "stringData")
}

// secretValues are what we set in a Secret. Of its other values, a scenario says no more than that they are none of these.
var secretValues = [2]string{"Y2hhbmdlZA==", "YWdhaW4="}

// wants returns a rule that holds if a field has the value that it has in an object, and if the object exists. It does not say what
// somebody else has put into a Secret.
func (f field) wants(value any) string {
	if !isSecret(f.target, f.path) {
		return f.exists(rule(variable, f.path, value))
	}
	var not []string
	for _, ours := range secretValues {
		if value == ours {
			return f.exists(rule(variable, f.path, value))
		}
		not = append(not, "!("+rule(variable, f.path, ours)+")")
	}
	return f.exists(not...)
}

// changes returns the patches that change a field to another value, the most harmless first.
func changes(of target, object oracle.Object, path fieldPath) (patches []torture.Patch) {
	value, ok := get(object, path)
	if !ok {
		return nil
	}
	to := others(value)
	if isSecret(of, path) {
		to = slices.DeleteFunc([]any{secretValues[0], secretValues[1]}, func(other any) bool { return other == value })
	}
	for _, other := range to {
		patches = append(patches, torture.Patch{Reference: of.reference(), Merge: merge(object, path, other)})
	}
	return patches
}

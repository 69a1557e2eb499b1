package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Path names a field of the objects of a resource: "pods: spec.nodeName". The part "*" stands for any key or list
// index. A key that contains a dot is quoted in brackets, and the resource may be narrowed to one object by its
// name: configmaps/leader: metadata.annotations["example.com/holder"].
type Path struct {
	resource string
	name     string // of the object, without what was generated; "" for every object
	parts    []string
}

// ParsePath parses a path.
func ParsePath(text string) (Path, error) {
	object, field, ok := strings.Cut(text, ":")
	resource, name, _ := strings.Cut(object, "/")
	parts := splitPath(strings.TrimSpace(field))
	if !ok || resource == "" || len(parts) == 0 || strings.ContainsAny(resource, " .") || strings.HasSuffix(object, "/") {
		return Path{}, fmt.Errorf("%q is not of the form RESOURCE: FIELD.FIELD, such as pods: spec.nodeName", text)
	}
	return Path{resource, name, parts}, nil
}

// pathPart is one key, quoted in brackets or up to the next dot or bracket.
var pathPart = regexp.MustCompile(`^(?:\["([^"]+)"\]|\.?([^.\[\]" ]+))`)

// splitPath returns the parts of a path, or nil if it is malformed.
func splitPath(text string) (parts []string) {
	for text != "" {
		match := pathPart.FindStringSubmatch(text)
		if match == nil || len(parts) == 0 && strings.HasPrefix(text, ".") {
			return nil
		}
		parts = append(parts, match[1]+match[2])
		text = text[len(match[0]):]
	}
	return parts
}

// joinPath is the opposite of splitPath.
func joinPath(parts []string) string {
	var text strings.Builder
	for i, part := range parts {
		switch {
		case strings.ContainsAny(part, ".[] "):
			fmt.Fprintf(&text, "[%q]", part)
		case i > 0:
			text.WriteString("." + part)
		default:
			text.WriteString(part)
		}
	}
	return text.String()
}

// neverEqual are the fields that differ between any two runs.
var neverEqual = []string{
	"metadata.uid", "metadata.resourceVersion", "metadata.managedFields", "metadata.selfLink",
	"metadata.ownerReferences.*.uid",
	// How often the spec was changed: several changes may be written as one.
	"metadata.generation", `metadata.annotations["deployment.kubernetes.io/revision"]`,
	// Of Pods: where they are scheduled, and their addresses and container IDs there.
	"spec.nodeName", "status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs",
	"status.containerStatuses.*.containerID", "status.initContainerStatuses.*.containerID",
	"spec.clusterIP", "spec.clusterIPs",
}

// neverEqualOf are such fields of one resource.
var neverEqualOf = []Path{{resource: "nodes", parts: []string{"status", "addresses"}}}

// tokenVolume is the generated name of the volume that holds a ServiceAccount's token.
var tokenVolume = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

// uuid is a generated identifier, such as a UID.
var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// Normalize returns the objects of a state as texts, sorted, without what differs between any two runs (UIDs, times,
// resourceVersions, generations, generated names, Nodes and addresses) and without the fields in mayDiffer. Of each
// observedGeneration in a status, only whether it is the object's generation is left: "CURRENT" or "NOT CURRENT".
func Normalize(state State, scope Scope, mayDiffer []Path) []string {
	var texts []string
	for _, resource := range sorted(state) {
		for _, object := range state[resource] {
			if !scope.owns(resource, object) {
				continue
			}
			name := scope.class(resource, object)
			data, err := json.Marshal(object)
			if err != nil {
				continue // it was decoded from JSON
			}
			var copied any
			if err := json.Unmarshal(data, &copied); err != nil {
				continue
			}
			if generation, has, _ := unstructured.NestedFloat64(copied.(Object), "metadata", "generation"); has {
				compareGenerations(copied.(Object)["status"], generation)
			}
			for _, path := range neverEqual {
				remove(copied, splitPath(path))
			}
			for _, path := range slices.Concat(neverEqualOf, mayDiffer) {
				if path.resource == resource && (path.name == "" || path.name == name) {
					remove(copied, path.parts)
				}
			}
			copied = withoutTimes(copied)
			top := copied.(map[string]any)
			metadata, _ := top["metadata"].(map[string]any)
			if metadata == nil { // mayDiffer has removed it
				metadata = map[string]any{}
				top["metadata"] = metadata
			}
			metadata["name"] = name
			data, err = json.Marshal(copied)
			if err != nil {
				continue
			}
			text := tokenVolume.ReplaceAllString(withoutNamespace(string(data), scope.Namespace), "kube-api-access-*")
			texts = append(texts, resource+" "+uuid.ReplaceAllString(text, "UUID"))
		}
	}
	slices.Sort(texts)
	return texts
}

// remove removes the field at path from a decoded JSON value.
func remove(value any, path []string) {
	switch value := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			if path[0] == "*" {
				clear(value)
			}
			delete(value, path[0])
			return
		}
		for key, inner := range value {
			if path[0] == "*" || path[0] == key {
				if _, isList := inner.([]any); isList && len(path) == 2 && path[1] == "*" {
					value[key] = []any{}
					continue
				}
				remove(inner, path[1:])
			}
		}
	case []any:
		if path[0] != "*" || len(path) == 1 {
			return
		}
		for _, inner := range value {
			remove(inner, path[1:])
		}
	}
}

// compareGenerations replaces every observedGeneration in a status by whether it equals the object's generation.
func compareGenerations(value any, generation float64) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			switch {
			case key != "observedGeneration":
				compareGenerations(inner, generation)
			case inner == generation:
				value[key] = "CURRENT"
			default:
				value[key] = "NOT CURRENT"
			}
		}
	case []any:
		for _, inner := range value {
			compareGenerations(inner, generation)
		}
	}
}

// withoutTimes replaces every string that is an RFC 3339 time.
func withoutTimes(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = withoutTimes(value[key])
		}
	case []any:
		for i := range value {
			value[i] = withoutTimes(value[i])
		}
	case string:
		if _, err := time.Parse(time.RFC3339Nano, value); err == nil {
			return "TIME"
		}
	}
	return value
}

// DifferenceKind says in what way an object differs from the one that was expected.
type DifferenceKind string

// The kinds of a [Difference].
const (
	Missing    DifferenceKind = "missing"    // it was expected and does not exist
	Unexpected DifferenceKind = "unexpected" // it exists and was not expected
	Changed    DifferenceKind = "changed"    // it exists with other fields
)

// Difference is one object in which a state differs from the one that was expected.
type Difference struct {
	Kind     DifferenceKind
	Resource string            // plural
	Name     string            // with "*" in place of what was generated
	Fields   []FieldDifference // of Changed, by path
}

// FieldDifference is a field with another value than expected. Got and Want are JSON, "" where the field is missing.
type FieldDifference struct {
	Path      string // as [ParsePath] reads it, without the resource
	Got, Want string
}

// Object names the object: "pod frontend-*".
func (d Difference) Object() string { return strings.TrimSuffix(d.Resource, "s") + " " + d.Name }

// String says what differs, in one line.
func (d Difference) String() string {
	switch d.Kind {
	case Missing:
		return d.Object() + " is missing"
	case Unexpected:
		return d.Object() + " should not exist"
	}
	var fields []string
	for _, f := range d.Fields {
		fields = append(fields, f.String())
	}
	const shown = 3
	if len(fields) > shown {
		fields = append(fields[:shown], "…")
	}
	return d.Object() + ": " + strings.Join(fields, "; ")
}

func (f FieldDifference) String() string {
	return fmt.Sprintf("%s is %s, should be %s", f.Path, shorten(f.Got), shorten(f.Want))
}

// Cause identifies differences of the same kind: it leaves out the values.
func (d Difference) Cause() string {
	cause := fmt.Sprintf("%s %s", d.Kind, d.Object())
	for _, f := range d.Fields {
		cause += " " + f.Path
	}
	return cause
}

// Compare returns the differences between two normalized states, see [Normalize]; nil if they are equal.
func Compare(want, got []string) []Difference {
	missing, unexpected := minus(want, got), minus(got, want)
	var differences []Difference
	for _, text := range missing {
		resource, wanted := parse(text)
		name := field(wanted, "metadata", "name")
		at := slices.IndexFunc(unexpected, func(other string) bool {
			otherResource, object := parse(other)
			return otherResource == resource && field(object, "metadata", "name") == name
		})
		if at < 0 {
			differences = append(differences, Difference{Kind: Missing, Resource: resource, Name: name})
			continue
		}
		_, is := parse(unexpected[at])
		unexpected = slices.Delete(unexpected, at, at+1)
		d := Difference{Kind: Changed, Resource: resource, Name: name}
		compareFields(nil, wanted, is, &d.Fields)
		slices.SortFunc(d.Fields, func(a, b FieldDifference) int { return strings.Compare(a.Path, b.Path) })
		differences = append(differences, d)
	}
	for _, text := range unexpected {
		resource, object := parse(text)
		differences = append(differences, Difference{Kind: Unexpected, Resource: resource, Name: field(object, "metadata", "name")})
	}
	return differences
}

// minus returns the texts of a that are not in b. Texts that occur several times are counted.
func minus(a, b []string) []string {
	left := map[string]int{}
	for _, text := range b {
		left[text]++
	}
	var rest []string
	for _, text := range a {
		if left[text]--; left[text] < 0 {
			rest = append(rest, text)
		}
	}
	return rest
}

// parse splits a normalized text into resource and object.
func parse(text string) (resource string, object Object) {
	resource, data, _ := strings.Cut(text, " ")
	_ = json.Unmarshal([]byte(data), &object) // Normalize has written it
	return resource, object
}

// compareFields adds the fields that differ, at their deepest common path.
func compareFields(path []string, want, got any, differences *[]FieldDifference) {
	a, isMap := want.(map[string]any)
	b, areMaps := got.(map[string]any)
	if isMap && areMaps {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for key := range keys {
			compareFields(append(slices.Clip(path), key), a[key], b[key], differences)
		}
		return
	}
	wantText, gotText := text(want), text(got)
	if wantText != gotText {
		*differences = append(*differences, FieldDifference{joinPath(path), gotText, wantText})
	}
}

// text is a value as JSON, or "" for none.
func text(value any) string {
	if value == nil {
		return ""
	}
	data, _ := json.Marshal(value) // it was decoded from JSON
	return string(data)
}

func shorten(text string) string {
	const limit = 60
	if text == "" {
		return "missing"
	}
	if len(text) > limit {
		return text[:limit] + "…"
	}
	return text
}

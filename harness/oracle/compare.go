package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Path names fields that may differ: "pods: spec.nodeName". A part "*" is any key or index.
type Path struct {
	resource string
	parts    []string
}

// ParsePath reads a path.
func ParsePath(text string) (Path, error) {
	resource, path, ok := strings.Cut(text, ":")
	path = strings.TrimSpace(path)
	if !ok || resource == "" || path == "" || strings.ContainsAny(resource, " .") {
		return Path{}, fmt.Errorf("%q is not of the form RESOURCE: FIELD.FIELD, such as pods: spec.nodeName", text)
	}
	return Path{resource, strings.Split(path, ".")}, nil
}

// neverTheSame are the fields that differ between any two runs.
var neverTheSame = []string{
	"metadata.uid", "metadata.resourceVersion", "metadata.managedFields", "metadata.selfLink",
	"metadata.ownerReferences.*.uid",
	// Of Pods: where they are, and how they are called there.
	"spec.nodeName", "status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs",
	"status.containerStatuses.*.containerID", "status.initContainerStatuses.*.containerID",
	"spec.clusterIP", "spec.clusterIPs",
}

// randomVolume is the name of the volume that a ServiceAccount's token comes in.
var randomVolume = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

// uuid is what the world outside likes to call things.
var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// Normalize returns the objects of a state as texts, sorted, without what is never the same twice (UUIDs,
// times, resourceVersions, generated names, Nodes and addresses), nor what may differ.
func Normalize(state State, namespace string, mayDiffer []Path) []string {
	var texts []string
	for _, resource := range sorted(state) {
		for name, object := range state[resource] {
			if name == rootCA {
				continue
			}
			data, err := json.Marshal(object)
			if err != nil {
				continue // it has come as JSON
			}
			var copied any
			if err := json.Unmarshal(data, &copied); err != nil {
				continue
			}
			for _, path := range neverTheSame {
				remove(copied, strings.Split(path, "."))
			}
			for _, path := range mayDiffer {
				if path.resource == resource {
					remove(copied, path.parts)
				}
			}
			copied = withoutTimes(copied)
			top := copied.(map[string]any)
			metadata, _ := top["metadata"].(map[string]any)
			if metadata == nil { // all of it may differ
				metadata = map[string]any{}
				top["metadata"] = metadata
			}
			metadata["name"] = class(object)
			data, err = json.Marshal(copied)
			if err != nil {
				continue
			}
			text := randomVolume.ReplaceAllString(within(string(data), namespace), "kube-api-access-*")
			texts = append(texts, resource+" "+uuid.ReplaceAllString(text, "UUID"))
		}
	}
	slices.Sort(texts)
	return texts
}

// remove takes a field out of what JSON has become.
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

// withoutTimes replaces what is a time.
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

// Compare says how a world differs from the one that it should be, or "". Both are of [Normalize].
func Compare(want, got []string) string {
	missing, surplus := minus(want, got), minus(got, want)
	switch {
	case len(missing) == 0 && len(surplus) == 0:
		return ""
	case len(missing) == 0:
		return "there should be no " + named(surplus[0])
	case len(surplus) == 0:
		return "there is no " + named(missing[0])
	}
	for _, a := range missing {
		for _, b := range surplus {
			if named(a) == named(b) {
				return fmt.Sprintf("%s differs: %s", named(a), difference(a, b))
			}
		}
	}
	return fmt.Sprintf("there is %s, and there should be %s", named(surplus[0]), named(missing[0]))
}

// minus returns what is in a and not in b, each as often.
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

// parsed is a normalized text as resource and object.
func parsed(text string) (resource string, object Object) {
	resource, data, _ := strings.Cut(text, " ")
	_ = json.Unmarshal([]byte(data), &object) // we have written it
	return resource, object
}

// named names a normalized object.
func named(text string) string {
	resource, object := parsed(text)
	return strings.TrimSuffix(resource, "s") + " " + field(object, "metadata", "name")
}

// difference names the first fields that differ.
func difference(want, got string) string {
	_, a := parsed(want)
	_, b := parsed(got)
	var differ []string
	walk("", a, b, &differ)
	slices.Sort(differ)
	const most = 3
	if len(differ) > most {
		differ = append(differ[:most], "…")
	}
	return strings.Join(differ, "; ")
}

func walk(path string, want, got any, differ *[]string) {
	a, isMap := want.(map[string]any)
	b, areMaps := got.(map[string]any)
	if isMap && areMaps {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for key := range keys {
			walk(strings.TrimPrefix(path+"."+key, "."), a[key], b[key], differ)
		}
		return
	}
	wanted, _ := json.Marshal(want)
	is, _ := json.Marshal(got)
	if string(wanted) != string(is) {
		*differ = append(*differ, fmt.Sprintf("%s is %s, should be %s", path, short(is), short(wanted)))
	}
}

func short(data []byte) string {
	const most = 60
	if string(data) == "null" {
		return "missing"
	}
	if len(data) > most {
		return string(data[:most]) + "…"
	}
	return string(data)
}

package oracle

import (
	"fmt"
	"path"
	"strings"
)

// Scope says which objects of a cluster belong to a run, and how they are named. An object is named by its name, with its
// namespace in front if that is not the run's own: "web" or "kitchen/web".
type Scope struct {
	// Namespace is the run's own. It is left out of names, and has another name in each run.
	Namespace string
	// Cluster says that the objects of all namespaces, and those without one, belong to the run, but for those of
	// Kubernetes itself, whose namespaces begin with "kube-".
	Cluster bool
	// Names are patterns of names that differ between any two runs. Objects that match one are named by the pattern.
	Names []NamePattern
}

// NamePattern is a pattern of names: "configmaps: lock-*". A "*" stands for any characters but "/".
type NamePattern struct{ resource, pattern string }

// ParseNamePattern parses a pattern.
func ParseNamePattern(text string) (NamePattern, error) {
	resource, pattern, ok := strings.Cut(text, ":")
	pattern = strings.TrimSpace(pattern)
	if _, err := path.Match(pattern, ""); !ok || err != nil || resource == "" || pattern == "" || strings.ContainsAny(resource, " .*") {
		return NamePattern{}, fmt.Errorf("%q is not of the form RESOURCE: NAME, with * for what differs, such as configmaps: lock-*", text)
	}
	return NamePattern{resource, pattern}, nil
}

// Key is the name of an object in a [State].
func (s Scope) Key(o Object) string {
	return s.qualify(field(o, "metadata", "namespace"), field(o, "metadata", "name"))
}

func (s Scope) qualify(namespace, name string) string {
	if namespace == "" || namespace == s.Namespace {
		return name
	}
	return namespace + "/" + name
}

// class names an object without what was generated: by its generateName, by a pattern, or by its name with "UUID" in place
// of a UUID.
func (s Scope) class(resource string, o Object) string {
	name := field(o, "metadata", "name")
	if generated := field(o, "metadata", "generateName"); generated != "" {
		name = generated + "*"
	}
	for _, p := range s.Names {
		if is, _ := path.Match(p.pattern, field(o, "metadata", "name")); is && p.resource == resource {
			name = p.pattern
		}
	}
	return s.qualify(field(o, "metadata", "namespace"), uuid.ReplaceAllString(name, "UUID"))
}

// owns reports whether an object belongs to the run.
func (s Scope) owns(resource string, o Object) bool {
	name, namespace := field(o, "metadata", "name"), field(o, "metadata", "namespace")
	switch {
	case name == rootCA && resource == "configmaps", resource == "serviceaccounts" && name == "default":
		return false // the controller manager adds them to every namespace, at some time
	case !s.Cluster:
		return true
	case resource == "namespaces":
		namespace = name
	}
	return !strings.HasPrefix(namespace, "kube-")
}

package inmemory

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// target is what a request is for.
type target struct {
	schema.GroupVersionResource
	verb, subresource, namespace, name string
	dryRun                             bool // nothing is stored
}

func (t target) key() string { return t.namespace + "/" + t.name }

// parse returns what a request is for; the resource is "" if it is not for a resource.
func parse(r *http.Request) target {
	var t target
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		t.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		t.Group, t.Version, parts = parts[1], parts[2], parts[3:]
	default:
		t.verb = strings.ToLower(r.Method)
		return t
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.Resource = parts[0]
	t.dryRun = slices.Contains(r.URL.Query()["dryRun"], metav1.DryRunAll)
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = strings.Join(parts[2:], "/")
	}
	switch r.Method {
	case http.MethodGet:
		t.verb = "get"
		if t.name == "" {
			t.verb = "list"
		}
		if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			t.verb = "watch"
		}
	case http.MethodPost:
		t.verb = "create"
	case http.MethodPut:
		t.verb = "update"
	case http.MethodPatch:
		t.verb = "patch"
	case http.MethodDelete:
		t.verb = "delete"
		if t.name == "" {
			t.verb = "deletecollection"
		}
	}
	return t
}

// createdByUpdate reports whether an update of an object that does not exist creates it.
func (t target) createdByUpdate() bool {
	switch t.GroupResource().String() {
	case "leases.coordination.k8s.io", "events", "events.events.k8s.io", "endpoints",
		"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
		"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io":
		return t.subresource == ""
	}
	return false
}

// checkNamespace returns an error if the object is of another namespace than the request.
func (t target) checkNamespace(object Object) error {
	if namespace := metadata(object, "namespace"); namespace != "" && namespace != t.namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the provided object does not match the namespace sent on the request: %s, %s", namespace, t.namespace))
	}
	return nil
}

// hasGeneration says whether the API server counts the changes of the object's spec. It does not for ConfigMaps and Services,
// for example.
func (t target) hasGeneration() bool {
	switch t.Group {
	case "":
		return t.Resource == "pods" || t.Resource == "replicationcontrollers"
	case "coordination.k8s.io", "events.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io":
		return false
	}
	return true
}

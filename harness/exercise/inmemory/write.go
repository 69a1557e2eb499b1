package inmemory

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/controllers/harness/history"
)

// create stores a new object.
func (s *Server) create(t target, object Object) (Object, error) {
	if metadata(object, "name") == "" && metadata(object, "generateName") != "" {
		s.names++
		set(object, "name", fmt.Sprintf("%s%05d", metadata(object, "generateName"), s.names))
	}
	t.name = metadata(object, "name")
	if t.name == "" {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: t.Group, Kind: s.kinds[t.GroupVersionResource]}, "", nil)
	}
	if err := t.checkNamespace(object); err != nil {
		return nil, err
	}
	if s.objects[t.GroupResource()][t.key()] != nil {
		return nil, apierrors.NewAlreadyExists(t.GroupResource(), t.name)
	}
	if namespace := s.objects[schema.GroupResource{Resource: "namespaces"}]["/"+t.namespace]; namespace != nil && metadata(namespace, "deletionTimestamp") != "" {
		err := apierrors.NewForbidden(t.GroupResource(), t.name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", t.namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "NamespaceTerminating", Field: "metadata.namespace"})
		return nil, err
	}
	if object["kind"] == nil {
		object["kind"], object["apiVersion"] = s.kinds[t.GroupVersionResource], t.GroupVersion().String()
	}
	if t.namespace != "" {
		set(object, "namespace", t.namespace)
	}
	set(object, "uid", fmt.Sprintf("00000000-0000-0000-0000-%012d", s.version+1))
	if metadata(object, "creationTimestamp") == "" {
		set(object, "creationTimestamp", time.Now().UTC().Format(time.RFC3339))
	}
	unstructured.RemoveNestedField(object, "metadata", "generation")
	if t.hasGeneration() {
		set(object, "generation", int64(1))
	}
	return s.store(t, "ADDED", nil, object), nil
}

// count sets the generation of a copy of old that is about to be stored: one more than old's.
func (t target) count(object, old Object) {
	if t.hasGeneration() {
		generation, _, _ := unstructured.NestedInt64(old, "metadata", "generation")
		set(object, "generation", generation+1)
	}
}

// store makes a change: it gives the object the next resourceVersion and tells all watches. For a deletion, the object
// is its last state.
func (s *Server) store(t target, kind string, old, object Object) Object {
	if t.dryRun {
		return object
	}
	s.version++
	set(object, "resourceVersion", strconv.FormatInt(s.version, 10))
	resource := t.GroupResource()
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]Object{}
	}
	if kind == "DELETED" {
		delete(s.objects[resource], t.key())
	} else {
		s.objects[resource][t.key()] = object
	}
	c := change{s.version, time.Now(), resource, kind, object, old}
	s.changes = append(s.changes, c)
	for w := range s.watches {
		w.add(c)
	}
	if s.onChange != nil {
		s.onChange(history.Event{
			Time: c.time, Type: kind, Group: resource.Group, Resource: resource.Resource, Namespace: metadata(object, "namespace"),
			Name: metadata(object, "name"), UID: metadata(object, "uid"), ResourceVersion: metadata(object, "resourceVersion"),
		})
	}
	return object
}

// update replaces an object, as far as the request may change it.
func (s *Server) update(t target, old, object Object) (Object, error) {
	if name := metadata(object, "name"); name != t.name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, t.name))
	}
	if err := t.checkNamespace(object); err != nil {
		return nil, err
	}
	if version := metadata(object, "resourceVersion"); version != "" && version != metadata(old, "resourceVersion") {
		return nil, conflict(t, "the object has been modified; please apply your changes to the latest version and try again")
	}
	_, err := s.typed(t)
	isCustom := err != nil
	if isCustom && t.verb == "update" && metadata(object, "resourceVersion") == "" {
		return nil, s.invalid(t, "metadata.resourceVersion", "must be specified for an update")
	}
	if uid := metadata(object, "uid"); uid != "" && uid != metadata(old, "uid") {
		switch {
		case t.verb == "update":
			return nil, conflict(t, "Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, metadata(old, "uid"))
		case isCustom && t.subresource == "status": // a real one ignores it
		default:
			return nil, s.invalid(t, "metadata.uid", "field is immutable")
		}
	}
	if metadata(old, "deletionTimestamp") != "" && t.subresource == "" {
		for _, finalizer := range finalizers(object) {
			if !slices.Contains(finalizers(old), finalizer) {
				return nil, s.invalid(t, "metadata.finalizers", "no new finalizers can be added if the object is being deleted, found new finalizers "+finalizer)
			}
		}
	}
	updated := runtime.DeepCopyJSON(object)
	switch {
	case t.subresource == "status":
		status := updated["status"]
		updated = runtime.DeepCopyJSON(old)
		setOrDelete(updated, "status", status)
	case t.subresource != "":
		return nil, apierrors.NewMethodNotSupported(t.GroupResource(), t.subresource)
	case s.hasStatus(t):
		setOrDelete(updated, "status", runtime.DeepCopyJSONValue(old["status"]))
	}
	for _, field := range []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation", "namespace"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(old, "metadata", field); found {
			set(updated, field, value)
		} else {
			unstructured.RemoveNestedField(updated, "metadata", field)
		}
	}
	for _, empty := range []string{"annotations", "labels", "finalizers", "ownerReferences", "managedFields"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(updated, "metadata", empty); found && (value == nil || reflect.ValueOf(value).Len() == 0) {
			unstructured.RemoveNestedField(updated, "metadata", empty)
		}
	}
	setOrDelete(updated, "kind", old["kind"])
	setOrDelete(updated, "apiVersion", old["apiVersion"])
	if err := s.immutable(t, old, updated); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(old, updated) {
		return old, nil // as the API server, which does not write it
	}
	if t.subresource == "" && !reflect.DeepEqual(old["spec"], updated["spec"]) {
		t.count(updated, old)
	}
	if metadata(updated, "deletionTimestamp") != "" && len(finalizers(updated)) == 0 {
		return s.store(t, "DELETED", old, updated), nil
	}
	return s.store(t, "MODIFIED", old, updated), nil
}

// invalid returns the error for a field that validation rejects.
func (s *Server) invalid(t target, path, message string) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: t.Group, Kind: s.kinds[t.GroupVersionResource]}, t.name,
		field.ErrorList{field.Forbidden(field.NewPath(path), message)})
}

func conflict(t target, format string, args ...any) error {
	return apierrors.NewConflict(t.GroupResource(), t.name, fmt.Errorf(format, args...))
}

// delete deletes an object, or marks it as being deleted if it has finalizers.
func (s *Server) delete(t target, old Object, options metav1.DeleteOptions) (Object, error) {
	t.dryRun = t.dryRun || slices.Contains(options.DryRun, metav1.DryRunAll)
	if p := options.Preconditions; p != nil {
		for field, want := range map[string]*string{"uid": (*string)(p.UID), "resourceVersion": p.ResourceVersion} {
			if got := metadata(old, field); want != nil && *want != got {
				return nil, conflict(t, "Precondition failed: %s in precondition: %s, %s in object meta: %s", field, *want, field, got)
			}
		}
	}
	deleted := runtime.DeepCopyJSON(old)
	if len(finalizers(old)) == 0 {
		return s.store(t, "DELETED", old, deleted), nil
	}
	if metadata(old, "deletionTimestamp") != "" {
		return old, nil
	}
	set(deleted, "deletionTimestamp", time.Now().UTC().Format(time.RFC3339))
	set(deleted, "deletionGracePeriodSeconds", int64(0))
	if t.Group == "" && t.Resource == "namespaces" {
		_ = unstructured.SetNestedField(deleted, "Terminating", "status", "phase") // fails only if the status is no object
	}
	t.count(deleted, old)
	return s.store(t, "MODIFIED", old, deleted), nil
}

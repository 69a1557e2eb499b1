// Package inmemory is an API server for the check of an exercise: objects in memory, behind the HTTP client of
// client-go, without a network. It works in virtual time, in a bubble of testing/synctest.
//
//   - Any client of client-go works with it, typed, generated or dynamic, and so do informers and leader election.
//   - It behaves as a real API server does where controllers depend on it: resourceVersions, conflicts, UIDs,
//     preconditions, finalizers, generations, the status subresource, label and field selectors, watches that continue
//     at a resourceVersion, and writes that change nothing.
//   - It records each request and each event of a watch, and injects the faults of package apiproxy.
//
// It has no defaulting, no admission, nearly no validation, no authorization, no field ownership (server-side apply
// merges) and no controllers: nobody creates the Pods of a Deployment, and Pods are deleted at once.
package inmemory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// Object is an object as JSON.
type Object = map[string]any

// Server is an API server. Its methods may be called concurrently.
type Server struct {
	record func(history.Record) // never called concurrently

	mu        sync.Mutex
	version   int64 // resourceVersion of the last change of any object
	names     int64 // number of names generated so far
	requests  int64
	kinds     map[schema.GroupVersionResource]string
	objects   map[schema.GroupResource]map[string]Object // by namespace/name; an Object is never modified once it is stored
	changes   []change                                   // sorted by version
	watches   map[*watch]bool
	faults    []*fault
	recording sync.Mutex // serializes calls of record
}

// change is one change of an object.
type change struct {
	version  int64
	time     time.Time
	resource schema.GroupResource
	kind     string // ADDED, MODIFIED or DELETED
	object   Object
	old      Object // before the change; nil if it did not exist
}

// fault is a fault in force, and how many requests it has matched.
type fault struct {
	apiproxy.Fault
	matched int
	first   time.Time // when it applied for the first time
}

// New returns a server without any objects. record is called with each request when it ends, a watch also when it
// begins, and with each event of a watch before the client gets it.
func New(record func(history.Record)) *Server {
	s := &Server{
		record: record, kinds: map[schema.GroupVersionResource]string{},
		objects: map[schema.GroupResource]map[string]Object{}, watches: map[*watch]bool{},
	}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		if !strings.HasSuffix(gvk.Kind, "List") {
			s.kinds[resource] = gvk.Kind
		}
	}
	return s
}

// AddResource tells the server of a custom resource. It is necessary only if a client lists or watches the resource with
// a client that needs to know the kind.
func (s *Server) AddResource(resource schema.GroupVersionResource, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[resource] = kind
}

// Inject adds faults to the requests of all clients but privileged ones, until remove or Heal is called.
func (s *Server) Inject(faults ...apiproxy.Fault) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var added []*fault
	for _, f := range faults {
		added = append(added, &fault{Fault: f})
	}
	s.faults = append(s.faults, added...)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = slices.DeleteFunc(s.faults, func(f *fault) bool { return slices.Contains(added, f) })
	}
}

// Heal ends all faults. Watches whose events were held back deliver them.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
	for w := range s.watches {
		w.release()
	}
}

// CutWatches breaks all watches of a resource, or all watches if resource is "".
func (s *Server) CutWatches(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		if resource == "" || w.resource.Resource == resource {
			w.stop()
		}
	}
}

// ForgetChanges makes the server answer watches from an earlier resourceVersion with 410 Gone, as after a compaction.
func (s *Server) ForgetChanges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes = nil
}

// Version returns the resourceVersion of the last change.
func (s *Server) Version() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

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

// serve carries out a request that is not a watch. It returns what the server answers, and for a write the object's
// resourceVersions before and after it.
func (s *Server) serve(t target, r *http.Request, body []byte) (status int, answer any, before, after Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, before, after, err := s.carryOut(t, r, body)
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		if known, ok := err.(apierrors.APIStatus); ok {
			status = known.Status()
		}
		status.Kind, status.APIVersion = "Status", "v1"
		return int(status.Code), status, before, after
	}
	if t.verb == "create" {
		return http.StatusCreated, answer, before, after
	}
	return http.StatusOK, answer, before, after
}

func (s *Server) carryOut(t target, r *http.Request, body []byte) (answer any, before, after Object, err error) {
	resource := t.GroupResource()
	if t.Resource == "" {
		if r.URL.Path == "/version" {
			return map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.1"}, nil, nil, nil
		}
		return nil, nil, nil, apierrors.NewNotFound(resource, r.URL.Path)
	}
	before = s.objects[resource][t.key()]
	mustExist := t.verb != "list" && t.verb != "create" && t.verb != "deletecollection" &&
		!(t.verb == "patch" && r.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType)) && !(t.verb == "update" && t.createdByUpdate())
	if before == nil && (mustExist || t.subresource != "") {
		return nil, nil, nil, apierrors.NewNotFound(resource, t.name)
	}
	switch t.verb {
	case "get":
		return before, before, before, nil
	case "list":
		list, err := s.list(t, r)
		return list, nil, nil, err
	case "create":
		if t.subresource == "eviction" {
			after, err := s.delete(t, before, evictionOptions(body))
			return success(), before, after, err
		}
		object, err := decode(body)
		if err != nil {
			return nil, nil, nil, apierrors.NewBadRequest(err.Error())
		}
		if t.subresource != "" {
			return nil, nil, nil, apierrors.NewMethodNotSupported(resource, t.subresource)
		}
		if metadata(object, "resourceVersion") != "" {
			err := apierrors.NewInternalError(errors.New("resourceVersion should not be set on objects to be created"))
			err.ErrStatus.Reason = metav1.StatusReasonUnknown // so does a real one
			return nil, nil, nil, err
		}
		after, err = s.create(t, object)
		return after, nil, after, err
	case "update", "patch":
		object, err := s.requested(t, r, before, body)
		if err != nil {
			return nil, before, before, err
		}
		if before == nil {
			after, err = s.create(t, object)
			return after, nil, after, err
		}
		after, err = s.update(t, before, object)
		return after, before, after, err
	case "delete":
		var options metav1.DeleteOptions
		if len(body) > 0 {
			if err := json.Unmarshal(body, &options); err != nil {
				return nil, before, before, apierrors.NewBadRequest(err.Error())
			}
		}
		after, err = s.delete(t, before, options)
		if err == nil && s.objects[resource][t.key()] != nil {
			return after, before, after, nil // finalizers keep it
		}
		return success(), before, after, err
	case "deletecollection":
		list, err := s.list(t, r)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, object := range list["items"].([]any) {
			item := t
			item.namespace, item.name = metadata(object.(Object), "namespace"), metadata(object.(Object), "name")
			if _, err := s.delete(item, object.(Object), metav1.DeleteOptions{}); err != nil {
				return nil, nil, nil, err
			}
		}
		return success(), nil, nil, nil
	}
	return nil, nil, nil, apierrors.NewMethodNotSupported(resource, t.verb)
}

func success() metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
}

func evictionOptions(body []byte) metav1.DeleteOptions {
	var eviction struct {
		DeleteOptions *metav1.DeleteOptions `json:"deleteOptions"`
	}
	_ = json.Unmarshal(body, &eviction) // without options, it has no preconditions
	if eviction.DeleteOptions == nil {
		return metav1.DeleteOptions{}
	}
	return *eviction.DeleteOptions
}

func decode(body []byte) (Object, error) {
	var object Object
	err := utiljson.Unmarshal(body, &object)
	return object, err
}

// metadata returns a string of the object's metadata.
func metadata(object Object, field string) string {
	value, _, _ := unstructured.NestedString(object, "metadata", field)
	return value
}

func finalizers(object Object) []string {
	list, _, _ := unstructured.NestedStringSlice(object, "metadata", "finalizers")
	return list
}

// set sets a field of the object's metadata. The object must be a copy that is not stored yet.
func set(object Object, field string, value any) {
	if _, ok := object["metadata"].(Object); !ok {
		object["metadata"] = Object{}
	}
	object["metadata"].(Object)[field] = value
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
	return object
}

// requested returns the object that an update or a patch asks for.
func (s *Server) requested(t target, r *http.Request, current Object, body []byte) (Object, error) {
	if t.verb == "update" {
		object, err := decode(body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return object, nil
	}
	if current == nil {
		current = Object{}
	}
	original, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	var patched []byte
	patchType := types.PatchType(r.Header.Get("Content-Type"))
	if patchType == types.ApplyYAMLPatchType {
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		patchType = types.StrategicMergePatchType
		if _, err := s.typed(t); err != nil {
			patchType = types.MergePatchType
		}
	}
	switch patchType {
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(body); err == nil {
			patched, err = patch.Apply(original)
		}
	case types.MergePatchType:
		patched, err = jsonpatch.MergePatch(original, body)
	case types.StrategicMergePatchType:
		var typed runtime.Object
		if typed, err = s.typed(t); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", t.GroupResource(), t.name, "strategic merge patch needs a built-in type", 0, false)
		}
		patched, err = strategicpatch.StrategicMergePatch(original, body, typed)
	default:
		return nil, apierrors.NewBadRequest("unknown patch type " + string(patchType))
	}
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: t.Group, Kind: t.Resource}, t.name, nil)
	}
	return decode(patched)
}

// typed returns an empty object of the resource's Go type.
func (s *Server) typed(t target) (runtime.Object, error) {
	return scheme.Scheme.New(t.GroupVersion().WithKind(s.kinds[t.GroupVersionResource]))
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

func setOrDelete(object Object, field string, value any) {
	if value == nil {
		delete(object, field)
		return
	}
	object[field] = value
}

// hasStatus says whether an update of the resource leaves its status alone. Custom resources are taken to have the status
// subresource.
func (s *Server) hasStatus(t target) bool {
	typed, err := s.typed(t)
	if err != nil {
		return true
	}
	return reflect.ValueOf(typed).Elem().FieldByName("Status").IsValid()
}

// immutable returns an error if the update changes what the API server lets nobody change.
func (s *Server) immutable(t target, old, updated Object) error {
	invalid := func(field string) error {
		err := apierrors.NewInvalid(schema.GroupKind{Group: t.Group, Kind: s.kinds[t.GroupVersionResource]}, t.name, nil)
		err.ErrStatus.Message += fmt.Sprintf("%s: Invalid value: field is immutable", field)
		return err
	}
	if t.Group != "" || t.Resource != "secrets" && t.Resource != "configmaps" {
		return nil
	}
	if !reflect.DeepEqual(cmp.Or(old["type"], any("")), cmp.Or(updated["type"], any(""))) {
		return invalid("type")
	}
	if old["immutable"] == true {
		for _, field := range []string{"data", "stringData", "binaryData", "immutable"} {
			if !reflect.DeepEqual(old[field], updated[field]) {
				return invalid(field)
			}
		}
	}
	return nil
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

// list returns a list of the objects that a request selects, sorted by namespace and name.
func (s *Server) list(t target, r *http.Request) (Object, error) {
	selects, err := newSelector(t, r)
	if err != nil {
		return nil, err
	}
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(s.objects[t.GroupResource()])) {
		if object := s.objects[t.GroupResource()][key]; selects.matches(object) {
			items = append(items, object)
		}
	}
	list := Object{"metadata": Object{"resourceVersion": strconv.FormatInt(s.version, 10)}, "items": items}
	if kind := s.kinds[t.GroupVersionResource]; kind != "" {
		list["kind"], list["apiVersion"] = kind+"List", t.GroupVersion().String()
	}
	return list, nil
}

// Put stores an object as it is, its status included, without a request. An object of the same name is replaced.
func (s *Server) Put(resource schema.GroupVersionResource, object Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := target{GroupVersionResource: resource, namespace: metadata(object, "namespace"), name: metadata(object, "name")}
	if old := s.objects[t.GroupResource()][t.key()]; old != nil {
		object = runtime.DeepCopyJSON(object)
		for _, field := range []string{"uid", "creationTimestamp"} {
			set(object, field, metadata(old, field))
		}
		if generation, found, _ := unstructured.NestedInt64(old, "metadata", "generation"); found {
			set(object, "generation", generation)
		}
		if !reflect.DeepEqual(old["spec"], object["spec"]) {
			t.count(object, old)
		}
		s.store(t, "MODIFIED", old, object)
		return nil
	}
	_, err := s.create(t, runtime.DeepCopyJSON(object))
	return err
}

// Objects returns the objects of a resource. Callers must not modify them.
func (s *Server) Objects(resource schema.GroupResource) []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var objects []Object
	for _, key := range slices.Sorted(maps.Keys(s.objects[resource])) {
		objects = append(objects, s.objects[resource][key])
	}
	return objects
}

// encode returns the JSON form of an answer.
func encode(answer any) []byte {
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(answer); err != nil {
		panic(err) // everything that is stored came from JSON
	}
	return text.Bytes()
}

// Resource returns the preferred version of a resource.
func (s *Server) Resource(name schema.GroupResource) (schema.GroupVersionResource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []schema.GroupVersionResource
	for resource := range s.kinds {
		if resource.GroupResource() == name {
			found = append(found, resource)
		}
	}
	if len(found) == 0 {
		return schema.GroupVersionResource{}, fmt.Errorf("no resource %s; custom resources need AddResource", name)
	}
	return slices.MinFunc(found, func(a, b schema.GroupVersionResource) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	}), nil
}

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
	"strings"
	"sync"
	"sync/atomic"
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
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/history"
)

// Object is an object as JSON.
type Object = map[string]any

// Server is an API server. Its methods may be called concurrently.
type Server struct {
	record  func(history.Record) // never called concurrently
	clients atomic.Int64         // number of the last client

	mu        sync.Mutex
	version   int64 // resourceVersion of the last change of any object
	names     int64 // number of names generated so far
	requests  int64
	kinds     map[schema.GroupVersionResource]string
	objects   map[schema.GroupResource]map[string]Object // by namespace/name; an Object is never modified once it is stored
	changes   []change                                   // sorted by version
	watches   map[*watch]bool
	faults    []*fault
	befores   []before
	recording sync.Mutex // serializes calls of record

	onBlindWrite func(history.Request)
	onChange     func(history.Event)
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

// OnChange sets what is called for each change of an object, as if by a watch of everything that no fault disturbs. It must not call
// the server.
func (s *Server) OnChange(do func(history.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onChange = do
}

// Version returns the resourceVersion of the last change.
func (s *Server) Version() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
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
			err.ErrStatus.Reason = metav1.StatusReasonUnknown // as on a real one
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

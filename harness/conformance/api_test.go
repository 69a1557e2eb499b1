package conformance_test

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func TestCustomResourcesCanBeDefinedAndUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, err := w.cluster.Config()
	require.NoError(t, err)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	group := w.namespace + ".example.com"
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	type object = map[string]any
	definition, err := definitions.Create(t.Context(), &unstructured.Unstructured{Object: object{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   object{"name": "widgets." + group},
		"spec": object{
			"group": group,
			"scope": "Namespaced",
			"names": object{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{object{
				"name": "v1", "served": true, "storage": true,
				"subresources": object{"status": object{}},
				"schema": object{"openAPIV3Schema": object{
					"type": "object",
					"properties": object{
						"spec": object{"type": "object", "properties": object{
							"size": object{"type": "integer", "minimum": int64(1)},
						}},
						"status": object{"type": "object", "properties": object{
							"phase": object{"type": "string"},
						}},
					},
				}},
			}},
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.cleanup(t, func(ctx context.Context) error {
		return definitions.Delete(ctx, definition.GetName(), metav1.DeleteOptions{})
	})

	widgets := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Namespace(w.namespace)
	widget := func(name string, size int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: object{
			"apiVersion": group + "/v1",
			"kind":       "Widget",
			"metadata":   object{"name": name},
			"spec":       object{"size": size, "unheard-of": true},
			"status":     object{"phase": "not by this way"},
		}}
	}
	eventually(t, func(ctx context.Context) error {
		_, err := widgets.List(ctx, metav1.ListOptions{})
		return err
	})
	created, err := widgets.Create(t.Context(), widget("good", 3), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, object{"size": int64(3)}, created.Object["spec"], "an unknown field is dropped")
	require.NotContains(t, created.Object, "status", "status is a subresource")
	_, err = widgets.Create(t.Context(), widget("bad", 0), metav1.CreateOptions{})
	require.True(t, apierrors.IsInvalid(err), "%v", err)

	require.NoError(t, unstructured.SetNestedField(created.Object, "Ready", "status", "phase"))
	updated, err := widgets.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, object{"phase": "Ready"}, updated.Object["status"])

	require.NoError(t, definitions.Delete(t.Context(), definition.GetName(), metav1.DeleteOptions{}))
	eventually(t, func(ctx context.Context) error {
		_, err := definitions.Get(ctx, definition.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("the definition is still there")
	})
}

func TestValidatingAdmissionPolicyRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	policies := w.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := w.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	name := w.namespace
	_, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
					},
				}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "!object.metadata.name.startsWith('secret-')",
				Message:    "a secret is no ConfigMap",
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.cleanup(t, func(ctx context.Context) error { return policies.Delete(ctx, name, metav1.DeleteOptions{}) })
	_, err = bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.cleanup(t, func(ctx context.Context) error { return bindings.Delete(ctx, name, metav1.DeleteOptions{}) })

	create := func(ctx context.Context, name string) error {
		_, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	var refusal error
	eventually(t, func(ctx context.Context) error {
		if refusal = create(ctx, "secret-sauce"); refusal == nil {
			return errors.New("the policy is not enforced yet")
		}
		return nil
	})
	require.True(t, apierrors.IsInvalid(refusal), "%v", refusal)
	require.ErrorContains(t, refusal, "a secret is no ConfigMap")
	require.NoError(t, create(t.Context(), "sauce"))

	becomes(t, policies, name, "checked", func(policy *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
		return policy.Status.ObservedGeneration == policy.Generation && policy.Status.TypeChecking != nil
	})
}

func TestServerSideApplyKeepsAccountOfFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	apply := func(manager, key, value string, force bool) (*corev1.ConfigMap, error) {
		config := applycorev1.ConfigMap("config", w.namespace).WithData(map[string]string{key: value})
		return configMaps.Apply(t.Context(), config, metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	_, err := apply("alice", "color", "red", false)
	require.NoError(t, err)
	both, err := apply("bob", "shape", "round", false)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"color": "red", "shape": "round"}, both.Data)
	fields := map[string]string{}
	for _, entry := range both.ManagedFields {
		require.Equal(t, metav1.ManagedFieldsOperationApply, entry.Operation)
		fields[entry.Manager] = entry.FieldsV1.GetRawString()
	}
	require.Equal(t, map[string]string{"alice": `{"f:data":{"f:color":{}}}`, "bob": `{"f:data":{"f:shape":{}}}`}, fields)

	_, err = apply("bob", "color", "blue", false)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(t, err, `conflict with "alice": .data.color`)
	// What bob does not apply any more goes; what he takes by force is his.
	forced, err := apply("bob", "color", "blue", true)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"color": "blue"}, forced.Data)
}

func TestStaleUpdateIsAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	stale, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	fresh := stale.DeepCopy()
	fresh.Data = map[string]string{"by": "somebody else"}
	fresh, err = configMaps.Update(t.Context(), fresh, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NotEqual(t, stale.ResourceVersion, fresh.ResourceVersion)

	stale.Data = map[string]string{"by": "us"}
	_, err = configMaps.Update(t.Context(), stale, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	other := types.UID("another")
	err = configMaps.Delete(t.Context(), "config", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	now, err := configMaps.Get(t.Context(), "config", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, fresh.Data, now.Data)
}

// watchConfigMaps watches those of the test's namespace and returns a function that waits for the
// next event.
func (w *world) watchConfigMaps(t *testing.T, options metav1.ListOptions) (next func() watch.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	t.Cleanup(cancel)
	watcher, err := w.client.CoreV1().ConfigMaps(w.namespace).Watch(ctx, options)
	require.NoError(t, err)
	t.Cleanup(watcher.Stop)
	return func() watch.Event {
		t.Helper()
		event, ok := <-watcher.ResultChan()
		require.True(t, ok, "the watch ended")
		return event
	}
}

func TestWatchGoesOnFromAResourceVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exists(t, w.client.CoreV1().ConfigMaps(w.namespace), "kube-root-ca.crt") // no more from others after it
	configMaps := w.client.CoreV1().ConfigMaps(w.namespace)
	list, err := configMaps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	// All this happens before the watch begins, and none of it is missed.
	config, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	config.Data = map[string]string{"color": "red"}
	_, err = configMaps.Update(t.Context(), config, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, configMaps.Delete(t.Context(), "config", metav1.DeleteOptions{}))

	next := w.watchConfigMaps(t, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	last := list.ResourceVersion
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		event := next()
		require.Equal(t, want, event.Type, "%v", event.Object)
		seen := event.Object.(*corev1.ConfigMap)
		require.Equal(t, "config", seen.Name)
		order, err := resource.ParseQuantity(seen.ResourceVersion)
		require.NoError(t, err)
		require.Positive(t, order.Cmp(resource.MustParse(last)))
		last = seen.ResourceVersion
	}
}

// A watch list sends what is there, and then a bookmark that says so.
func TestWatchListEndsInABookmark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exists(t, w.client.CoreV1().ConfigMaps(w.namespace), "kube-root-ca.crt")
	initial := true
	next := w.watchConfigMaps(t, metav1.ListOptions{
		SendInitialEvents:    &initial,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	})
	event := next()
	require.Equal(t, watch.Added, event.Type)
	require.Equal(t, "kube-root-ca.crt", event.Object.(*corev1.ConfigMap).Name)
	event = next()
	require.Equal(t, watch.Bookmark, event.Type)
	bookmark := event.Object.(*corev1.ConfigMap)
	require.Equal(t, "true", bookmark.Annotations[metav1.InitialEventsAnnotationKey])
	require.NotEmpty(t, bookmark.ResourceVersion)
}

// A watch that nothing happens to gets a bookmark before its time is over, so that its watcher can go
// on from there.
func TestIdleWatchGetsABookmark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exists(t, w.client.CoreV1().ConfigMaps(w.namespace), "kube-root-ca.crt")
	list, err := w.client.CoreV1().ConfigMaps(w.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	next := w.watchConfigMaps(t, metav1.ListOptions{
		ResourceVersion:     list.ResourceVersion,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      new(int64(10)), // a bookmark comes two seconds before the end, or with the next second
	})
	event := next()
	require.Equal(t, watch.Bookmark, event.Type, "%v", event.Object)
	require.NotEmpty(t, event.Object.(*corev1.ConfigMap).ResourceVersion)
}

// The URLs in the list of OpenAPI documents end in hashes of the documents, so that clients can keep them.
func TestOpenAPIDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.client.Discovery().RESTClient()

	text, err := client.Get().AbsPath("/openapi/v3").DoRaw(t.Context())
	require.NoError(t, err)
	var list struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(text, &list))
	for name, schema := range map[string]string{
		"api/v1":                         "io.k8s.api.core.v1.Pod",
		"apis/apps/v1":                   "io.k8s.api.apps.v1.Deployment",
		"apis/apiextensions.k8s.io/v1":   "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
		"apis/apiregistration.k8s.io/v1": "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
	} {
		location, err := url.Parse(list.Paths[name].ServerRelativeURL)
		require.NoError(t, err)
		require.Equal(t, "/openapi/v3/"+name, location.Path)
		hash := location.Query().Get("hash")
		require.NotEmpty(t, hash, name)
		text, err := client.Get().AbsPath(location.Path).Param("hash", hash).DoRaw(t.Context())
		require.NoError(t, err)
		require.Contains(t, string(text), strconv.Quote(schema)+":{", name)
		require.Equal(t, hash, fmt.Sprintf("%X", sha512.Sum512(text)), name)
	}

	text, err = client.Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(text), `"io.k8s.api.apps.v1.Deployment":{`)
}

package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

func TestCustomResourcesAreValidatedPrunedAndServed(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	config, err := e.cluster.Config()
	require.NoError(t, err)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	group := e.namespace + ".example.com"
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
	e.cleanup(t, func(ctx context.Context) error {
		return definitions.Delete(ctx, definition.GetName(), metav1.DeleteOptions{})
	})

	widgets := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Namespace(e.namespace)
	widget := func(name string, size int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: object{
			"apiVersion": group + "/v1",
			"kind":       "Widget",
			"metadata":   object{"name": name},
			"spec":       object{"size": size, "unknown": true},
			"status":     object{"phase": "ignored"},
		}}
	}
	eventually(t, func(ctx context.Context) error {
		_, err := widgets.List(ctx, metav1.ListOptions{})
		return err
	})
	created, err := widgets.Create(t.Context(), widget("good", 3), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, object{"size": int64(3)}, created.Object["spec"], "unknown fields are pruned")
	require.NotContains(t, created.Object, "status", "status can only be written through its subresource")
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
		return fmt.Errorf("CustomResourceDefinition %s still exists", definition.GetName())
	})
}

func TestValidatingAdmissionPolicyIsEnforced(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	policies := e.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := e.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	name := e.namespace
	_, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: e.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
					},
				}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "!object.metadata.name.startsWith('secret-')",
				Message:    "use a Secret instead of a ConfigMap",
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	e.cleanup(t, func(ctx context.Context) error { return policies.Delete(ctx, name, metav1.DeleteOptions{}) })
	_, err = bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	e.cleanup(t, func(ctx context.Context) error { return bindings.Delete(ctx, name, metav1.DeleteOptions{}) })

	create := func(ctx context.Context, name string) error {
		_, err := e.client.CoreV1().ConfigMaps(e.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
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
	require.ErrorContains(t, refusal, "use a Secret instead of a ConfigMap")
	require.NoError(t, create(t.Context(), "sauce"))

	waitUntil(t, policies, name, "type-checked", func(policy *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
		return policy.Status.ObservedGeneration == policy.Generation && policy.Status.TypeChecking != nil
	})
}

func TestServerSideApplyTracksFieldOwnership(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	configMaps := e.client.CoreV1().ConfigMaps(e.namespace)
	apply := func(manager, key, value string, force bool) (*corev1.ConfigMap, error) {
		config := applycorev1.ConfigMap("config", e.namespace).WithData(map[string]string{key: value})
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
	// Bob no longer applies shape, so it is removed. By force, he becomes the owner of color.
	forced, err := apply("bob", "color", "blue", true)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"color": "blue"}, forced.Data)
}

func TestStaleUpdateConflicts(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	configMaps := e.client.CoreV1().ConfigMaps(e.namespace)
	stale, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	fresh := stale.DeepCopy()
	fresh.Data = map[string]string{"by": "another client"}
	fresh, err = configMaps.Update(t.Context(), fresh, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NotEqual(t, stale.ResourceVersion, fresh.ResourceVersion)

	stale.Data = map[string]string{"by": "this client"}
	_, err = configMaps.Update(t.Context(), stale, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	other := types.UID("another")
	err = configMaps.Delete(t.Context(), "config", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	now, err := configMaps.Get(t.Context(), "config", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, fresh.Data, now.Data)
}

// watchConfigMaps watches the ConfigMaps in the test's namespace. next waits for the next event and returns it.
func (e *testEnv) watchConfigMaps(t *testing.T, options metav1.ListOptions) (next func() watch.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	t.Cleanup(cancel)
	watcher, err := e.client.CoreV1().ConfigMaps(e.namespace).Watch(ctx, options)
	require.NoError(t, err)
	t.Cleanup(watcher.Stop)
	return func() watch.Event {
		t.Helper()
		event, ok := <-watcher.ResultChan()
		require.True(t, ok, "the watch ended")
		return event
	}
}

func TestWatchStartsAtAResourceVersion(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	waitForCreation(t, e.client.CoreV1().ConfigMaps(e.namespace), "kube-root-ca.crt") // the last event that this test does not cause
	configMaps := e.client.CoreV1().ConfigMaps(e.namespace)
	list, err := configMaps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	// All of this happens before the watch starts, and the watch still reports it.
	config, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	config.Data = map[string]string{"color": "red"}
	_, err = configMaps.Update(t.Context(), config, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, configMaps.Delete(t.Context(), "config", metav1.DeleteOptions{}))

	next := e.watchConfigMaps(t, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	last := list.ResourceVersion
	for _, expected := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		event := next()
		require.Equal(t, expected, event.Type, "%v", event.Object)
		configMap := event.Object.(*corev1.ConfigMap)
		require.Equal(t, "config", configMap.Name)
		version, err := resource.ParseQuantity(configMap.ResourceVersion)
		require.NoError(t, err)
		require.Positive(t, version.Cmp(resource.MustParse(last)), "resourceVersions increase")
		last = configMap.ResourceVersion
	}
}

// A watch with sendInitialEvents sends all objects that exist, and then a bookmark with an annotation.
func TestInitialEventsOfAWatchEndWithABookmark(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	waitForCreation(t, e.client.CoreV1().ConfigMaps(e.namespace), "kube-root-ca.crt")
	initial := true
	next := e.watchConfigMaps(t, metav1.ListOptions{
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

// A watch without events gets a bookmark shortly before it times out, so that its client can start the next one from a
// recent resourceVersion. The API server does not promise it: on a busy machine, a watch may end without one.
func TestIdleWatchGetsABookmark(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	waitForCreation(t, e.client.CoreV1().ConfigMaps(e.namespace), "kube-root-ca.crt")
	list, err := e.client.CoreV1().ConfigMaps(e.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), hangTimeout)
	defer cancel()
	for {
		watcher, err := e.client.CoreV1().ConfigMaps(e.namespace).Watch(ctx, metav1.ListOptions{
			ResourceVersion:     list.ResourceVersion,
			AllowWatchBookmarks: true,
			TimeoutSeconds:      new(int64(10)), // a bookmark is sent about two seconds before the end
		})
		require.NoError(t, err, "no watch got a bookmark")
		event, ok := <-watcher.ResultChan()
		watcher.Stop()
		if ok {
			require.Equal(t, watch.Bookmark, event.Type, "%v", event.Object)
			require.NotEmpty(t, event.Object.(*corev1.ConfigMap).ResourceVersion)
			return
		}
	}
}

// The index of OpenAPI documents has URLs with a hash, and a response to such a URL says that it can be cached.
func TestOpenAPIDocumentsCanBeCached(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	client := e.client.Discovery().RESTClient()
	config, err := e.cluster.Config()
	require.NoError(t, err)
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	defer httpClient.CloseIdleConnections()

	text, err := client.Get().AbsPath("/openapi/v3").DoRaw(t.Context())
	require.NoError(t, err)
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(text, &index))
	for name, schema := range map[string]string{
		"api/v1":                         "io.k8s.api.core.v1.Pod",
		"apis/apps/v1":                   "io.k8s.api.apps.v1.Deployment",
		"apis/apiextensions.k8s.io/v1":   "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
		"apis/apiregistration.k8s.io/v1": "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
	} {
		location, err := url.Parse(index.Paths[name].ServerRelativeURL)
		require.NoError(t, err)
		require.Equal(t, "/openapi/v3/"+name, location.Path)
		require.NotEmpty(t, location.Query().Get("hash"), name)
		for query, cached := range map[string]string{
			location.RawQuery:   "public, immutable",
			"hash=of-a-cluster": "public, immutable", // after a redirect
			"":                  "no-cache, private",
		} {
			location.RawQuery = query
			response, err := httpClient.Get(config.Host + location.String())
			require.NoError(t, err)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, errors.Join(err, response.Body.Close()))
			require.Equal(t, http.StatusOK, response.StatusCode, name)
			require.Equal(t, cached, response.Header.Get("Cache-Control"), name)
			require.Equal(t, query == "hash=of-a-cluster", response.Request.URL.RawQuery != query, "redirected: %s", name)
			require.Contains(t, string(text), strconv.Quote(schema)+":{", name)
		}
	}

	text, err = client.Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(text), `"io.k8s.api.apps.v1.Deployment":{`)
}

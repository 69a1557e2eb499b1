package inmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/exercise/inmemory"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/suite"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	leases     = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// requests are made of both servers.
type requests struct {
	ctx       context.Context
	t         *testing.T
	client    dynamic.Interface
	namespace string
}

func parseObject(t *testing.T, text string) *unstructured.Unstructured {
	inJSON, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	object := map[string]any{}
	require.NoError(t, json.Unmarshal(inJSON, &object))
	return &unstructured.Unstructured{Object: object}
}

func (r requests) on(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	return r.client.Resource(resource).Namespace(r.namespace)
}

// given creates an object.
func (r requests) given(resource schema.GroupVersionResource, text string) *unstructured.Unstructured {
	created, err := r.on(resource).Create(r.ctx, parseObject(r.t, text), metav1.CreateOptions{})
	require.NoError(r.t, err)
	return created
}

// patch returns the outcome of a merge patch.
func (r requests) patch(resource schema.GroupVersionResource, text string, subresources ...string) string {
	_, err := r.on(resource).Patch(r.ctx, "a", types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
	return outcome(err)
}

// exists says what has become of an object.
func (r requests) exists(resource schema.GroupVersionResource) string {
	object, err := r.on(resource).Get(r.ctx, "a", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "it is gone"
	case err != nil:
		return err.Error()
	case object.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("it is being deleted, finalizers %v", object.GetFinalizers())
	}
	return "it is there"
}

// outcome is the status and the reason of an answer.
func outcome(err error) string {
	status, ok := err.(apierrors.APIStatus)
	switch {
	case err == nil:
		return "ok"
	case !ok:
		return err.Error()
	}
	return fmt.Sprintf("%d %s", status.Status().Code, status.Status().Reason)
}

const (
	configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: "1"}}`
	kept      = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [example.com/x]}, data: {k: "1"}}`
	onePod    = `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}`
	widget    = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {size: 1}}`
)

// A controller may depend on any of these. What the two servers answer, and what they have then, is the same.
var compared = map[string]func(r requests) string{
	"create what exists": func(r requests) string {
		r.given(configMaps, configMap)
		_, err := r.on(configMaps).Create(r.ctx, parseObject(r.t, configMap), metav1.CreateOptions{})
		return outcome(err)
	},
	"create with a resourceVersion": func(r requests) string {
		_, err := r.on(configMaps).Create(r.ctx, parseObject(r.t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, resourceVersion: "5"}}`), metav1.CreateOptions{})
		return outcome(err)
	},
	"create with a UID": func(r requests) string {
		created := r.given(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: mine}}`)
		return fmt.Sprint(created.GetUID() == "mine")
	},
	"get what does not exist": func(r requests) string {
		_, err := r.on(configMaps).Get(r.ctx, "a", metav1.GetOptions{})
		return outcome(err)
	},
	"update with an old resourceVersion": func(r requests) string {
		old := r.given(configMaps, configMap)
		r.patch(configMaps, `{"data":{"k":"2"}}`)
		_, err := r.on(configMaps).Update(r.ctx, old, metav1.UpdateOptions{})
		return outcome(err)
	},
	"update without a resourceVersion": func(r requests) string {
		r.given(configMaps, configMap)
		_, err := r.on(configMaps).Update(r.ctx, parseObject(r.t, configMap), metav1.UpdateOptions{})
		return outcome(err)
	},
	"update a custom resource without a resourceVersion": func(r requests) string {
		r.given(widgets, widget)
		_, err := r.on(widgets).Update(r.ctx, parseObject(r.t, widget), metav1.UpdateOptions{})
		return outcome(err)
	},
	"update with another UID": func(r requests) string {
		changed := r.given(configMaps, configMap)
		changed.SetUID("another")
		changed.SetResourceVersion("")
		_, err := r.on(configMaps).Update(r.ctx, changed, metav1.UpdateOptions{})
		return outcome(err)
	},
	"update under another name": func(r requests) string {
		changed := r.given(configMaps, configMap)
		changed.SetName("b")
		_, err := r.on(configMaps).Update(r.ctx, changed, metav1.UpdateOptions{})
		return outcome(err)
	},
	"update what does not exist": func(r requests) string {
		_, err := r.on(configMaps).Update(r.ctx, parseObject(r.t, configMap), metav1.UpdateOptions{})
		return outcome(err)
	},
	"update a Lease that does not exist": func(r requests) string {
		_, err := r.on(leases).Update(r.ctx, parseObject(r.t, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a}}`), metav1.UpdateOptions{})
		return outcome(err) + ", " + r.exists(leases)
	},
	"update without a change": func(r requests) string {
		before := r.given(configMaps, configMap)
		after, err := r.on(configMaps).Update(r.ctx, before, metav1.UpdateOptions{})
		return fmt.Sprint(outcome(err), before.GetResourceVersion() == after.GetResourceVersion())
	},
	"patch with another UID": func(r requests) string {
		r.given(configMaps, configMap)
		return r.patch(configMaps, `{"metadata":{"uid":"another"},"data":{"k":"2"}}`)
	},
	"patch a custom resource with another UID": func(r requests) string {
		r.given(widgets, widget)
		return r.patch(widgets, `{"metadata":{"uid":"another"},"spec":{"size":2}}`)
	},
	"patch the status with another UID": func(r requests) string {
		r.given(pods, onePod)
		return r.patch(pods, `{"metadata":{"uid":"another"},"status":{"message":"m"}}`, "status")
	},
	"patch the status of a custom resource with another UID": func(r requests) string {
		r.given(widgets, widget)
		answer := r.patch(widgets, `{"metadata":{"uid":"another"},"status":{"size":2}}`, "status")
		object, err := r.on(widgets).Get(r.ctx, "a", metav1.GetOptions{})
		require.NoError(r.t, err)
		return fmt.Sprint(answer, object.Object["status"], object.GetUID() == "another")
	},
	"patch with an old resourceVersion": func(r requests) string {
		old := r.given(configMaps, configMap)
		r.patch(configMaps, `{"data":{"k":"2"}}`)
		return r.patch(configMaps, fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"data":{"k":"3"}}`, old.GetResourceVersion()))
	},
	"patch what does not exist": func(r requests) string { return r.patch(configMaps, `{"data":{"k":"3"}}`) },
	"a JSON patch whose test fails": func(r requests) string {
		r.given(configMaps, configMap)
		_, err := r.on(configMaps).Patch(r.ctx, "a", types.JSONPatchType, []byte(`[{"op":"test","path":"/data/k","value":"9"},{"op":"replace","path":"/data/k","value":"2"}]`), metav1.PatchOptions{})
		return outcome(err)
	},
	"a strategic merge patch of a custom resource": func(r requests) string {
		r.given(widgets, widget)
		_, err := r.on(widgets).Patch(r.ctx, "a", types.StrategicMergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
		return outcome(err)
	},
	"apply with an old resourceVersion": func(r requests) string {
		old := r.given(configMaps, configMap)
		r.patch(configMaps, `{"data":{"k":"2"}}`)
		apply := parseObject(r.t, configMap)
		apply.SetResourceVersion(old.GetResourceVersion())
		_, err := r.on(configMaps).Apply(r.ctx, "a", apply, metav1.ApplyOptions{FieldManager: "m", Force: true})
		return outcome(err)
	},
	"apply with another UID": func(r requests) string {
		r.given(configMaps, configMap)
		apply := parseObject(r.t, configMap)
		apply.SetUID("another")
		_, err := r.on(configMaps).Apply(r.ctx, "a", apply, metav1.ApplyOptions{FieldManager: "m", Force: true})
		return outcome(err)
	},
	"apply what does not exist": func(r requests) string {
		_, err := r.on(configMaps).Apply(r.ctx, "a", parseObject(r.t, configMap), metav1.ApplyOptions{FieldManager: "m"})
		return outcome(err) + ", " + r.exists(configMaps)
	},
	"change an immutable Secret": func(r requests) string {
		r.given(secrets, `{apiVersion: v1, kind: Secret, metadata: {name: a}, immutable: true, data: {k: MQ==}}`)
		return r.patch(secrets, `{"data":{"k":"Mg=="}}`)
	},
	"change the type of a Secret": func(r requests) string {
		r.given(secrets, `{apiVersion: v1, kind: Secret, metadata: {name: a}, type: Opaque, data: {k: MQ==}}`)
		return r.patch(secrets, `{"type":"example.com/x"}`)
	},
	"delete with another UID": func(r requests) string {
		r.given(configMaps, configMap)
		err := r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")})
		return outcome(err) + ", " + r.exists(configMaps)
	},
	"delete with an old resourceVersion": func(r requests) string {
		old := r.given(configMaps, configMap)
		r.patch(configMaps, `{"data":{"k":"2"}}`)
		err := r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new(old.GetResourceVersion())}})
		return outcome(err) + ", " + r.exists(configMaps)
	},
	"delete what does not exist": func(r requests) string {
		return outcome(r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{}))
	},
	"delete what has a finalizer": func(r requests) string {
		r.given(configMaps, kept)
		err := r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{})
		return outcome(err) + ", " + r.exists(configMaps)
	},
	"delete it again": func(r requests) string {
		r.given(configMaps, kept)
		_ = r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{})
		err := r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{})
		return outcome(err) + ", " + r.exists(configMaps)
	},
	"add a finalizer to what is being deleted": func(r requests) string {
		r.given(configMaps, kept)
		_ = r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{})
		return r.patch(configMaps, `{"metadata":{"finalizers":["example.com/x","example.com/y"]}}`) + ", " + r.exists(configMaps)
	},
	"remove the last finalizer": func(r requests) string {
		r.given(configMaps, kept)
		_ = r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{})
		return r.patch(configMaps, `{"metadata":{"finalizers":null}}`) + ", " + r.exists(configMaps)
	},
	"change what is being deleted": func(r requests) string {
		r.given(configMaps, kept)
		_ = r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{})
		return r.patch(configMaps, `{"data":{"k":"2"}}`) + ", " + r.exists(configMaps)
	},
	"delete in a dry run": func(r requests) string {
		r.given(configMaps, configMap)
		err := r.on(configMaps).Delete(r.ctx, "a", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return outcome(err) + ", " + r.exists(configMaps)
	},
	"create in a dry run": func(r requests) string {
		_, err := r.on(configMaps).Create(r.ctx, parseObject(r.t, configMap), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return outcome(err) + ", " + r.exists(configMaps)
	},
	"the generation counts changes of the spec": func(r requests) string {
		created := r.given(widgets, widget)
		r.patch(widgets, `{"spec":{"size":2}}`)
		r.patch(widgets, `{"metadata":{"labels":{"a":"b"}}}`)
		r.patch(widgets, `{"status":{"size":2}}`, "status")
		object, err := r.on(widgets).Get(r.ctx, "a", metav1.GetOptions{})
		require.NoError(r.t, err)
		return fmt.Sprint(created.GetGeneration(), object.GetGeneration())
	},
	"a HorizontalPodAutoscaler has a generation": func(r requests) string { // since 1.37
		created := r.given(schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
			`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a}, spec: {maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}}}`)
		return fmt.Sprint(created.GetGeneration())
	},
	"a generated name": func(r requests) string {
		created := r.given(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a-}}`)
		return fmt.Sprint(len(created.GetName()), created.GetName()[:2])
	},
}

// knownDifferences says where the server in memory differs on purpose, and why nobody is misled.
var knownDifferences = map[string]string{}

func TestAnswersAsARealServerDoes(t *testing.T) {
	suite.Long(t, "it starts a control plane")
	c, err := cluster.Start(t.Context(), cluster.Options{Progress: io.Discard})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	require.NoError(t, err)
	real, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	_, err = real.Resource(definitions).Create(t.Context(), parseObject(t, widgetDefinition), metav1.CreateOptions{})
	require.NoError(t, err)
	namespaces := real.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		_, err := real.Resource(widgets).List(context.Background(), metav1.ListOptions{})
		assert.NoError(t, err)
	}, 2*time.Minute, 50*time.Millisecond, "the API server serves Widgets")
	for name, do := range compared {
		t.Run(name, func(t *testing.T) {
			namespace, err := namespaces.Create(t.Context(), parseObject(t, `{apiVersion: v1, kind: Namespace, metadata: {generateName: compared-}}`), metav1.CreateOptions{})
			require.NoError(t, err)
			server := inmemory.New(func(history.Record) {})
			server.AddResource(widgets, "Widget")
			fake, err := dynamic.NewForConfig(server.NewClient("test", true, nil).Config())
			require.NoError(t, err)
			want := do(requests{t.Context(), t, real, namespace.GetName()})
			got := do(requests{t.Context(), t, fake, "default"})
			if why, known := knownDifferences[name]; known {
				require.NotEqual(t, want, got, "they are equal by now; remove it from the known differences (%s)", why)
				return
			}
			require.Equal(t, want, got, "expected is the real server's")
		})
	}
}

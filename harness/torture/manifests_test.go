package torture

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	clienttesting "k8s.io/client-go/testing"
)

const someManifests = `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: torture-placeholder}
---
# nothing
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bars.example.com}
spec: {conversion: {webhook: {clientConfig: {service: {namespace: torture-placeholder}}}}}
`

// The definitions come first. One that names the run's namespace is another one for each run.
func TestDecodeManifests(t *testing.T) {
	definitions, others, err := decodeManifests(someManifests, "torture-7")
	require.NoError(t, err)
	require.Len(t, definitions, 2)
	require.Len(t, others, 1)
	require.Equal(t, "torture-7", others[0].GetNamespace())
	other, _, err := decodeManifests(someManifests, "torture-8")
	require.NoError(t, err)
	require.Equal(t, definitions[0], other[0])
	require.Equal(t, definitions[1], other[1], "it names the Service of a webhook; another one for each run would make the API server close all watches of the resource")
	_, _, err = decodeManifests("kind: [", "torture-7")
	require.ErrorContains(t, err, "read the scenario's manifests: ")
}

// However many runs need a definition at the same time, it is applied once; after a failure, once more.
func TestOnce(t *testing.T) {
	var o once
	var applied atomic.Int64
	apply := func() error { applied.Add(1); return nil }
	failure := errors.New("no")
	require.ErrorIs(t, o.do("a", func() error { return failure }), failure)
	var runs sync.WaitGroup
	for range 10 {
		runs.Go(func() {
			if err := o.do("a", apply); err != nil {
				t.Error(err)
			}
		})
	}
	runs.Wait()
	require.Equal(t, int64(1), applied.Load())
	require.NoError(t, o.do("b", apply))
	require.Equal(t, int64(2), applied.Load())
}

// The watches of many runs do not fit on one connection.
func TestEachRunWatchesOnAConnectionOfItsOwn(t *testing.T) {
	var connections sync.Map
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections.Store(r.RemoteAddr, true)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "PodList"}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	k := &clients{config: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}}
	for range 3 {
		client, disconnect, err := k.watcher()
		require.NoError(t, err)
		defer disconnect()
		for range 2 {
			_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
		}
	}
	require.Len(t, maps.Collect(connections.Range), 3)
}

// What runs on one control plane would share is refused, unless a control plane has only one run.
func TestCheckScope(t *testing.T) {
	for name, c := range map[string]struct {
		group, resource, object string
		shared                  bool
	}{
		"in a namespace":            {"apps", "deployments", "web", false},
		"a Node":                    {"", "nodes", "node-0", true},
		"a webhook":                 {"admissionregistration.k8s.io", "validatingwebhookconfigurations", "all", true},
		"a ClusterRole":             {"rbac.authorization.k8s.io", "clusterroles", "web-torture-7", false},
		"a definition":              {"apiextensions.k8s.io", "customresourcedefinitions", "foos.example.com", false},
		"the namespace of the run":  {"", "namespaces", "torture-7", false},
		"another namespace":         {"", "namespaces", "shop", true},
		"another resource so named": {"example.com", "namespaces", "torture-7", true},
	} {
		t.Run(name, func(t *testing.T) {
			of := schema.GroupVersionResource{Group: c.group, Version: "v1", Resource: c.resource}
			err := new(clients).checkScope(of, c.resource == "deployments", c.object, "torture-7")
			if c.shared {
				require.ErrorContains(t, err, of.GroupResource().String()+" are not in a namespace")
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, (&clients{alone: true}).checkScope(of, false, c.object, "torture-7"))
		})
	}
}

// A scenario cannot name what runs would share, create it, or change it in a step.
func TestSharedObjectsAreRefused(t *testing.T) {
	discovery := fake.NewClientset()
	discovery.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "nodes", Kind: "Node"}}}}
	k := &clients{mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.Discovery()))}
	k.dynamic = dynamicfake.NewSimpleDynamicClient(scheme.Scheme, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}})
	for name, do := range map[string]func(*run) error{
		"resources": func(r *run) error { return r.prepareObjects(t.Context()) },
		"a manifest": func(r *run) error {
			return r.controlPlane.applyManifests(t.Context(), "{apiVersion: v1, kind: Node, metadata: {name: node-1}}", r.namespace)
		},
		"a step": func(r *run) error {
			_, err := r.tryAction(t.Context(), Action{Delete: &Reference{Resource: "nodes", Name: "node-0"}}, deletions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(&Scenario{Resources: []string{"nodes"}})
			r.controlPlane = &controlPlane{clients: k}
			require.ErrorContains(t, do(r), `nodes are not in a namespace, so that runs would share them: write "scope: cluster" in the scenario`)
		})
	}
}

// Who names a namespace that is not the run's is told how runs get theirs.
func TestNamespaceHint(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "shop"}}}
	missing := apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
	require.Equal(t, `; each run has a namespace of its own, here torture-1: leave out metadata.namespace, write {namespace} there in a step, or put "namespace: shop" into the scenario`,
		namespaceHint(object, "torture-1", false, missing))
	require.Equal(t, "; add the Namespace shop to the manifests", namespaceHint(object, "torture-1", true, missing), "on a cluster of its own")
	require.Empty(t, namespaceHint(object, "shop", false, missing), "it is the run's")
	require.Empty(t, namespaceHint(object, "torture-1", false, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), "web")))
	require.Empty(t, namespaceHint(object, "torture-1", false, errors.New("no connection")))
}

// If the time is over while a request is under way, the error is the one that there was before: it says what is wrong.
func TestAnEarlierErrorSaysMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		discovery := fake.NewClientset()
		discovery.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}}}
		cluster := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
		calls := 0
		cluster.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, kruntime.Object, error) {
			if calls++; calls == 1 {
				return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
			}
			time.Sleep(2 * servedTimeout)
			return true, nil, context.DeadlineExceeded
		})
		k := &clients{alone: true, dynamic: cluster, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.Discovery()))}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "shop"}}}
		_, err := k.applyOne(t.Context(), object, "torture")
		require.ErrorContains(t, err, `namespaces "shop" not found; add the Namespace shop to the manifests`)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	clienttesting "k8s.io/client-go/testing"
)

// An API server that is killed while it answers has deleted the object, or has not. The step asks again, and does not take
// its own deletion for the controller's.
func TestADeletionThatIsCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		before string // what happened before the answer was cut off: "", "deleted", "recreated", or "terminating": gone after the next read
		sent   []string
	}{
		"before it was deleted": {"", []string{"DELETE uid-1", "DELETE uid-1"}},
		"after it was deleted":  {"deleted", []string{"DELETE uid-1"}},
		"after it came back":    {"recreated", []string{"DELETE uid-1"}},
		"while it is deleted":   {"terminating", []string{"DELETE uid-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			uid, cut := "uid-1", false
			var sent []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				answer := func(status int, object any) {
					w.WriteHeader(status)
					_ = json.NewEncoder(w).Encode(object)
				}
				object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "n", "uid": uid}}
				if uid == "" {
					answer(http.StatusNotFound, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})
					return
				}
				if r.Method != http.MethodDelete {
					if cut && c.before == "terminating" {
						uid = "" // the next request does not find it
					}
					answer(http.StatusOK, object)
					return
				}
				sent = append(sent, r.Method+" "+uid)
				if !cut {
					cut = true
					uid = map[string]string{"": "uid-1", "deleted": "", "recreated": "uid-2", "terminating": "uid-1"}[c.before]
					w.Header().Set("Content-Length", "1000")
					_, _ = io.WriteString(w, "{")
					return // net/http closes the connection, because the answer is too short
				}
				uid = ""
				answer(http.StatusOK, object)
			}))
			defer server.Close()
			client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			configMaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("n")

			asked := deletions{}
			err = asked.request(t.Context(), configMaps, "a")
			require.Error(t, err)
			require.True(t, isCutOff(fmt.Errorf("delete configmaps a: %w", err)), "%v", err)
			require.NoError(t, asked.request(t.Context(), configMaps, "a"))
			require.Equal(t, c.sent, sent)
			require.EqualValues(t, "uid-1", asked["a"].GetUID())
		})
	}
	require.False(t, isCutOff(nil))
	require.False(t, isCutOff(fmt.Errorf("the server rejected our request")))
}

// On a busy machine, an API server that was started again may accept a connection and not answer for a long time.
func TestAStepWaitsForAnAPIServerThatDoesNotAnswer(t *testing.T) {
	object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}
	testAStepIsRepeated(t, Action{Apply: object}, func(r *http.Request) { <-r.Context().Done() })
}

func TestAStepWhoseRequestBreaksOffIsRepeated(t *testing.T) {
	patch := &Patch{Reference{Resource: "configmaps", Namespace: "shop", Name: "a"}, map[string]any{"data": map[string]any{"soup": "leek"}}}
	testAStepIsRepeated(t, Action{Patch: patch}, func(*http.Request) { panic(http.ErrAbortHandler) }) // RST_STREAM
}

// testAStepIsRepeated takes an action at an API server that does as fails says with the first request.
func testAStepIsRepeated(t *testing.T, action Action, fails func(*http.Request)) {
	defer func(long time.Duration) { servedTimeout = long }(servedTimeout)
	servedTimeout = 100 * time.Millisecond
	var asked atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices the end of the connection
		if asked.Add(1) == 1 {
			fails(r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "7"}}`)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	client := fake.NewClientset()
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}}}
	k := &clients{mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))}
	var err error
	k.dynamic, err = dynamic.NewForConfig(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	require.NoError(t, err)
	r := recorded(&Scenario{})
	r.controlPlane = &controlPlane{clients: k}
	done, err := r.applyAction(t.Context(), action)
	require.NoError(t, err)
	require.Equal(t, []applied{{"configmaps", "7"}}, done)
	require.GreaterOrEqual(t, asked.Load(), int32(2))
}

// The controller may delete an object that a selector has found, before the step gets to it. A step that names an object needs it.
func TestAnObjectThatIsDeletedDuringAStep(t *testing.T) {
	for name, c := range map[string]struct {
		action func(Reference) Action
		left   []string
	}{
		"patch": {func(ref Reference) Action {
			return Action{Patch: &Patch{ref, map[string]any{"data": map[string]any{"soup": "leek"}}}}
		}, []string{"a", "c"}},
		"delete": {func(ref Reference) Action { return Action{Delete: &ref} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			configMap := func(name string) *corev1.ConfigMap {
				return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "torture-1", Name: name, Labels: map[string]string{"app": "shop"}}}
			}
			discovery := fake.NewClientset()
			discovery.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}}}
			client := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, configMap("a"), configMap("b"), configMap("c"))
			configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
			client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, kruntime.Object, error) {
				if action.GetVerb() != "list" { // it has been found by now
					_ = client.Tracker().Delete(configMaps, "torture-1", "b")
				}
				return false, nil, nil
			})
			r := recorded(&Scenario{})
			r.controlPlane = &controlPlane{clients: &clients{dynamic: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.Discovery()))}}

			_, err := r.tryAction(t.Context(), c.action(Reference{Resource: "configmaps", Selector: "app=shop"}), deletions{})
			require.NoError(t, err)
			list, err := client.Resource(configMaps).Namespace("torture-1").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			var left []string
			for _, item := range list.Items {
				left = append(left, item.GetName())
			}
			require.Equal(t, c.left, left)

			_, err = r.tryAction(t.Context(), c.action(Reference{Resource: "configmaps", Name: "b"}), deletions{})
			require.ErrorContains(t, err, name+" configmaps b: ")
		})
	}
}

// Somebody else may change the status of an object.
func TestAStepChangesASubresource(t *testing.T) {
	discovery := fake.NewClientset()
	discovery.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true}}}}
	client := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
	var changed []string
	client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, kruntime.Object, error) {
		changed = append(changed, action.GetSubresource())
		return true, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"}}}, nil
	})
	r := recorded(&Scenario{})
	r.controlPlane = &controlPlane{clients: &clients{dynamic: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.Discovery()))}}
	patch := &Patch{Reference{Resource: "pods", Name: "a"}, map[string]any{"status": map[string]any{"phase": "Failed"}}}
	object := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"}}
	for _, action := range []Action{{Patch: patch}, {Patch: patch, Subresource: "status"}, {Apply: object}, {Apply: object, Subresource: "status"}} {
		_, err := r.tryAction(t.Context(), action, deletions{})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"", "status", "", "status"}, changed)
	require.NoError(t, Action{Patch: patch, Subresource: "status"}.check(r.scenario))
	require.ErrorContains(t, Action{Delete: &patch.Reference, Subresource: "status"}.check(r.scenario), "subresource is for patch and apply")
}

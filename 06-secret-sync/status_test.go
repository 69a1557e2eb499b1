package secretsync

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// An API server that is asked for pages sends no more than it likes, so a plan from the first page of each list is no plan.
// The fake clientset does not know Limit and Continue.
func TestThePlanIsMadeFromWholeLists(t *testing.T) {
	objects, namesakes := map[string][]any{}, []any{} // namesakes are in the way of all copies of source a
	for _, name := range []string{"a", "b"} {
		objects["/api/v1/namespaces"] = append(objects["/api/v1/namespaces"], testNamespace(func(n *metav1.PartialObjectMetadata) { n.Name = name }))
		objects["/api/v1/namespaces/secret-sync/secrets"] = append(objects["/api/v1/namespaces/secret-sync/secrets"], &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "secret-sync", Name: name, Labels: map[string]string{SharedLabel: "true"}}, Type: corev1.SecretTypeOpaque,
		})
		orphan := testCopy(testSource("gone"), func(c *metav1.PartialObjectMetadata) {
			c.Namespace = name
			c.Annotations[CopiedToAnnotation] = name + "/" + c.Name
		})
		objects["/api/v1/secrets"] = append(objects["/api/v1/secrets"], orphan)
		namesakes = append(namesakes, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "a"}})
	}
	namesakes = append(namesakes, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "gets-no-copies", Name: "a"}})
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		list := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": map[string]any{"resourceVersion": "1"}}
		if strings.HasSuffix(request.URL.Path, "/secret-sync/secrets") {
			list["apiVersion"], list["kind"] = "v1", "SecretList"
		}
		query, all := request.URL.Query(), objects[request.URL.Path]
		assert.NotEmpty(t, all, request.URL.Path)
		switch selector := query.Get("fieldSelector"); {
		case strings.Contains(selector, "metadata.name=a,"):
			all = namesakes
		case selector != "":
			all = nil
		}
		if query.Has("limit") && len(all) > 0 {
			from, _ := strconv.Atoi(query.Get("continue"))
			if from+1 < len(all) {
				list["metadata"] = map[string]any{"resourceVersion": "1", "continue": strconv.Itoa(from + 1)}
			}
			all = all[from : from+1]
		}
		list["items"] = all
		response.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(response).Encode(list))
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}

	plan, sources, err := Plan(t.Context(), kubernetes.NewForConfigOrDie(config), metadata.NewForConfigOrDie(config), testScope)
	require.NoError(t, err)
	require.Len(t, sources, 2)
	actions := map[Action]int{}
	for _, one := range plan {
		actions[one.Action]++
	}
	require.Equal(t, map[Action]int{None: 2, Create: 2, Delete: 2}, actions)
}

func TestSourceNamespaceExists(t *testing.T) {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	exists, err := SourceNamespaceExists(t.Context(), client, testScope)
	require.NoError(t, err)
	require.False(t, exists)
	require.NoError(t, client.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testScope.SourceNamespace}}))
	exists, err = SourceNamespaceExists(t.Context(), client, testScope)
	require.NoError(t, err)
	require.True(t, exists)
	client.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
	_, err = SourceNamespaceExists(t.Context(), client, testScope)
	require.EqualError(t, err, "look up namespace secret-sync: down")
}

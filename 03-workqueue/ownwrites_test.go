package workqueue

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// store is a store that has seen all events up to a resourceVersion.
type store string

func (s store) LastStoreSyncResourceVersion() string { return string(s) }

func (s store) GetByKey(string) (any, bool, error) { return nil, false, nil }

// silent is a store that cannot tell its resourceVersion. It has a Pod with its own, or with none.
type silent string

func (s silent) LastStoreSyncResourceVersion() string { return "" }

func (s silent) GetByKey(key string) (any, bool, error) {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: string(s)}}, key == frontend0.String(), nil
}

var frontend0 = cache.ObjectName{Namespace: namespace, Name: "frontend-0"}

func TestOwnWritesAreObservedByAStoreThatIsAsNew(t *testing.T) {
	tests := map[string]struct {
		wrote    string
		store    versionedStore
		observed bool
	}{
		"the store is older":               {wrote: "5", store: store("4"), observed: false},
		"the store is older, as a number":  {wrote: "10", store: store("9"), observed: false},
		"the store is as new":              {wrote: "5", store: store("5"), observed: true},
		"the store is newer":               {wrote: "5", store: store("6"), observed: true},
		"the store is newer, as a number":  {wrote: "9", store: store("10"), observed: true},
		"the store reports no version":     {wrote: "5", store: store(""), observed: true},
		"only its Pod does, an older one":  {wrote: "5", store: silent("4"), observed: false},
		"only its Pod does, a newer one":   {wrote: "5", store: silent("6"), observed: true},
		"nor does its Pod":                 {wrote: "5", store: silent(""), observed: true},
		"the store's version is no number": {wrote: "5", store: store("four"), observed: true},
		"the response had no version":      {wrote: "", store: store("4"), observed: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			writes := newOwnWrites()
			writes.wroteAt(frontend0, test.wrote)
			for range 2 {
				require.Equal(t, test.observed, writes.ensureReady(test.store, frontend0))
			}
			require.Equal(t, test.observed, len(writes.last) == 0, "only writes that were not observed are kept")
		})
	}
}

func TestOwnWritesAreKeptPerObject(t *testing.T) {
	writes := newOwnWrites()
	require.True(t, writes.ensureReady(store("1"), frontend0), "without a write")

	writes.wroteAt(frontend0, "5")
	require.True(t, writes.ensureReady(store("4"), cache.ObjectName{Namespace: namespace, Name: "frontend-1"}))
	require.True(t, writes.ensureReady(store("4"), cache.ObjectName{Namespace: "mall", Name: "frontend-0"}))
	require.False(t, writes.ensureReady(store("4"), frontend0))

	writes.wroteAt(frontend0, "7")
	require.False(t, writes.ensureReady(store("6"), frontend0), "the last write counts")
	require.True(t, writes.ensureReady(store("7"), frontend0))
	writes.wroteAt(frontend0, "9")
	require.False(t, writes.ensureReady(store("8"), frontend0), "after one that was observed")
}

// apiServer returns a client of a server that responds to each request with a status code and an object.
func apiServer(t *testing.T, code int, response any, inspect func(*http.Request)) kubernetes.Interface {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inspect(r)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		assert.NoError(t, json.NewEncoder(w).Encode(response))
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := kubernetes.NewForConfigAndClient(config, server.Client())
	require.NoError(t, err)
	return client
}

func TestPodDeleterDeletesThatPod(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "frontend-0", UID: "uid-0", ResourceVersion: "4"}}
	answer := pod.DeepCopy()
	answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	answer.ResourceVersion = "5"
	client := apiServer(t, http.StatusOK, answer, func(r *http.Request) {
		assert.Equal(t, "DELETE /api/v1/namespaces/shop/pods/frontend-0", r.Method+" "+r.URL.String())
		var options metav1.DeleteOptions
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&options))
		options.TypeMeta = metav1.TypeMeta{}
		// No resourceVersion, or any change of the Pod would fail its deletion. The Pod's own grace period applies.
		assert.Equal(t, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("uid-0")}, options)
	})
	resourceVersion, err := podDeleter(client)(t.Context(), pod)
	require.NoError(t, err)
	require.Equal(t, "5", resourceVersion, "the version after the deletion")
	require.Equal(t, "4", pod.ResourceVersion, "the cached Pod is not modified")
}

func TestPodDeleterAcceptsAResponseWithoutThePod(t *testing.T) {
	success := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	client := apiServer(t, http.StatusOK, success, func(*http.Request) {})
	resourceVersion, err := podDeleter(client)(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "frontend-0"}})
	require.NoError(t, err)
	require.Empty(t, resourceVersion)
}

func TestPodDeleterReturnsTheErrorOfTheAPIServer(t *testing.T) {
	pods := corev1.Resource("pods")
	tests := map[string]struct {
		status *apierrors.StatusError
		is     func(error) bool
	}{
		"not found":      {apierrors.NewNotFound(pods, "frontend-0"), apierrors.IsNotFound},
		"conflict":       {apierrors.NewConflict(pods, "frontend-0", errServer), apierrors.IsConflict},
		"forbidden":      {apierrors.NewForbidden(pods, "frontend-0", errServer), apierrors.IsForbidden},
		"internal error": {errServer, apierrors.IsInternalError},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := test.status.ErrStatus
			answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			client := apiServer(t, int(answer.Code), answer, func(*http.Request) {})
			_, err := podDeleter(client)(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "frontend-0"}})
			require.True(t, test.is(err), "%v", err)
		})
	}
}

func TestPodDeleterStopsWhenItsContextIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := apiServer(t, http.StatusOK, nil, func(r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body) // only then does a server notice that the client has disconnected
		assert.NoError(t, err)
		cancel()
		<-r.Context().Done()
	})
	_, err := podDeleter(client)(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "frontend-0"}})
	require.ErrorIs(t, err, context.Canceled)
}

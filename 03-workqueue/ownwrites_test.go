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

// store is a cache that has seen everything up to a resourceVersion.
type store string

func (s store) LastStoreSyncResourceVersion() string { return string(s) }

var frontend0 = cache.ObjectName{Namespace: namespace, Name: "frontend-0"}

func TestOwnWritesAreSeenByAStoreAsNew(t *testing.T) {
	tests := map[string]struct {
		wrote string
		store store
		seen  bool
	}{
		"the store is older":                    {wrote: "5", store: "4", seen: false},
		"the store is older, by the number":     {wrote: "10", store: "9", seen: false},
		"the store has just it":                 {wrote: "5", store: "5", seen: true},
		"the store is newer":                    {wrote: "5", store: "6", seen: true},
		"the store is newer, by the number":     {wrote: "9", store: "10", seen: true},
		"the store does not know how old it is": {wrote: "5", store: "", seen: true},
		"the store is of another kind":          {wrote: "5", store: "four", seen: true},
		"the answer had no resourceVersion":     {wrote: "", store: "4", seen: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			writes := newOwnWrites()
			writes.wrote(frontend0, test.wrote)
			for range 2 {
				require.Equal(t, test.seen, writes.seenBy(test.store, frontend0))
			}
			require.Equal(t, test.seen, len(writes.last) == 0, "what was seen, need not be remembered")
		})
	}
}

func TestOwnWritesAreKeptByObject(t *testing.T) {
	writes := newOwnWrites()
	require.True(t, writes.seenBy(store("1"), frontend0), "nothing was written")

	writes.wrote(frontend0, "5")
	require.True(t, writes.seenBy(store("4"), cache.ObjectName{Namespace: namespace, Name: "frontend-1"}))
	require.True(t, writes.seenBy(store("4"), cache.ObjectName{Namespace: "mall", Name: "frontend-0"}))
	require.False(t, writes.seenBy(store("4"), frontend0))

	writes.wrote(frontend0, "7")
	require.False(t, writes.seenBy(store("6"), frontend0), "the last write counts")
	require.True(t, writes.seenBy(store("7"), frontend0))
}

// apiServer answers each request with a status code and an object, and returns a client for it.
func apiServer(t *testing.T, code int, answer any, look func(*http.Request)) kubernetes.Interface {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look(r)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		assert.NoError(t, json.NewEncoder(w).Encode(answer))
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := kubernetes.NewForConfigAndClient(config, server.Client())
	require.NoError(t, err)
	return client
}

func TestDeleterDeletesThePodItWasGiven(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "frontend-0", UID: "the one", ResourceVersion: "4"}}
	answer := pod.DeepCopy()
	answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	answer.ResourceVersion = "5"
	client := apiServer(t, http.StatusOK, answer, func(r *http.Request) {
		assert.Equal(t, "DELETE /api/v1/namespaces/shop/pods/frontend-0", r.Method+" "+r.URL.String())
		var options metav1.DeleteOptions
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&options))
		assert.Equal(t, metav1.NewUIDPreconditions("the one"), options.Preconditions)
	})
	resourceVersion, err := deleter(client)(t.Context(), pod)
	require.NoError(t, err)
	require.Equal(t, "5", resourceVersion, "the Pod as the deletion left it")
	require.Equal(t, "4", pod.ResourceVersion, "a Pod of the cache is not written to")
}

func TestDeleterIsContentWithoutThePod(t *testing.T) {
	success := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	client := apiServer(t, http.StatusOK, success, func(*http.Request) {})
	resourceVersion, err := deleter(client)(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "frontend-0"}})
	require.NoError(t, err)
	require.Empty(t, resourceVersion)
}

func TestDeleterReturnsWhatTheAPIServerSays(t *testing.T) {
	pods := corev1.Resource("pods")
	tests := map[string]struct {
		status *apierrors.StatusError
		is     func(error) bool
	}{
		"the Pod is gone":    {apierrors.NewNotFound(pods, "frontend-0"), apierrors.IsNotFound},
		"it is another Pod":  {apierrors.NewConflict(pods, "frontend-0", errBadDay), apierrors.IsConflict},
		"we may not":         {apierrors.NewForbidden(pods, "frontend-0", errBadDay), apierrors.IsForbidden},
		"it does not get on": {errBadDay, apierrors.IsInternalError},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := test.status.ErrStatus
			answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			client := apiServer(t, int(answer.Code), answer, func(*http.Request) {})
			_, err := deleter(client)(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "frontend-0"}})
			require.True(t, test.is(err), "%v", err)
		})
	}
}

func TestDeleterGivesUpWhenItIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := apiServer(t, http.StatusOK, nil, func(r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body) // Only then does a server notice that the client has gone.
		assert.NoError(t, err)
		cancel()
		<-r.Context().Done()
	})
	_, err := deleter(client)(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "frontend-0"}})
	require.ErrorIs(t, err, context.Canceled)
}

package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// requests counts the requests that reach the API server.
type requests int

func (r *requests) RoundTrip(*http.Request) (*http.Response, error) {
	*r++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// A leader whose machine has hung for longer than its Lease lasts writes nothing before it has renewed the Lease.
func TestALeaderThatHungWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reached requests
		ours := testLease(fake.NewClientset(), "ours")
		client := ours.fence.wrap(&reached)
		send := func(method, path string) error {
			body := &closing{Reader: strings.NewReader("{}")}
			request, err := http.NewRequest(method, "https://cluster/prefix"+path, body)
			require.NoError(t, err)
			response, err := client.RoundTrip(request)
			if err == nil {
				require.NoError(t, response.Body.Close())
			} else {
				require.True(t, body.closed)
			}
			return err
		}
		const copies, leases = "/api/v1/namespaces/team-a/secrets/db", "/apis/coordination.k8s.io/v1/namespaces/shared/leases/secretsync-shared"
		require.NoError(t, send("PUT", copies), "without a Lease there is nobody else")

		ours.fence.hold(time.Time{})
		require.ErrorIs(t, send("PUT", copies), errFenced, "it does not lead yet")
		require.NoError(t, ours.Create(t.Context(), record("ours")))
		require.NoError(t, send("PUT", copies))
		for range 2 {
			time.Sleep(9 * time.Second)
			require.NoError(t, ours.Update(t.Context(), record("ours")))
			time.Sleep(9 * time.Second)
			require.NoError(t, send("DELETE", copies))

			before := reached
			time.Sleep(time.Second) // ten seconds after the last renewal
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
				require.ErrorIs(t, send(method, copies), errFenced)
			}
			require.Equal(t, before, reached)
			require.NoError(t, send("GET", copies))
			require.NoError(t, send("PUT", leases))
			require.Error(t, ours.Create(t.Context(), record("ours")), "it exists")
			require.ErrorIs(t, send("PUT", copies), errFenced)
			_, _, err := ours.Get(t.Context())
			require.NoError(t, err)
			require.NoError(t, ours.Update(t.Context(), record("ours")))
			require.NoError(t, send("PUT", copies))
		}
	})
}

// It writes nothing either from when it has read that the Lease is another's, although its own renewal is not long ago.
func TestALeaderThatReadsAnotherHolderWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		ours, theirs := testLease(client, "ours"), testLease(client, "theirs")
		writes := func() error {
			request, err := http.NewRequest("PUT", "https://cluster/api/v1/namespaces/team-a/secrets/db", nil)
			require.NoError(t, err)
			_, err = ours.fence.wrap(new(requests)).RoundTrip(request)
			return err
		}
		require.NoError(t, ours.Create(t.Context(), record("ours")))
		_, _, err := ours.Get(t.Context())
		require.NoError(t, err)
		require.NoError(t, writes())
		_, _, err = theirs.Get(t.Context())
		require.NoError(t, err)
		require.NoError(t, theirs.Update(t.Context(), record("theirs")))
		require.NoError(t, writes(), "it cannot know yet")
		_, _, err = ours.Get(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, writes(), errFenced)
	})
}

// While a machine is suspended, the monotonic clock stands still. And somebody may set the wall clock back. What either clock says
// is over, is over.
func TestTheFenceLooksAtBothClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fence
		f.hold(time.Now().Add(10 * time.Second))
		require.True(t, f.holds(time.Now()))
		f.until.Load().wall = time.Now().Add(-time.Hour).Round(0) // as if the wall clock had gone on for an hour
		require.False(t, f.holds(time.Now()))

		f.hold(time.Now().Add(10 * time.Second))
		f.until.Load().wall = time.Now().Add(time.Hour).Round(0) // as if it had been set back by an hour
		require.True(t, f.holds(time.Now()))
		time.Sleep(10 * time.Second)
		require.False(t, f.holds(time.Now()))
	})
}

// An answer to a renewal that comes late does not prolong the Lease: the API server may have written it long before.
func TestALateAnswerProlongsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		ours := testLease(client, "ours")
		late := func(clienttesting.Action) (bool, runtime.Object, error) {
			client.Unlock() // virtual time does not advance while somebody waits for a lock
			time.Sleep(6 * time.Second)
			client.Lock()
			return false, nil, nil
		}
		client.PrependReactor("create", "leases", late)
		client.PrependReactor("update", "leases", late)
		for _, write := range []func(context.Context, resourcelock.LeaderElectionRecord) error{ours.Create, ours.Update, ours.Update} {
			require.NoError(t, write(t.Context(), record("ours")))
			time.Sleep(4*time.Second - time.Millisecond) // until ten seconds after the request
			require.True(t, ours.fence.holds(time.Now()))
			time.Sleep(time.Millisecond)
			require.False(t, ours.fence.holds(time.Now()))
		}
	})
}

// The clients that the controller writes with, and no others, have the fence.
func TestTheClientsAreFenced(t *testing.T) {
	var reached requests
	var f fence
	client, metadataClient, err := clients(&rest.Config{Host: "https://cluster", Transport: &reached}, &f)
	require.NoError(t, err)
	f.hold(time.Time{})
	_, err = client.CoreV1().Secrets("team-a").Create(t.Context(), &corev1.Secret{}, metav1.CreateOptions{})
	require.ErrorIs(t, err, errFenced)
	err = client.CoreV1().Secrets("team-a").Delete(t.Context(), "db", metav1.DeleteOptions{})
	require.ErrorIs(t, err, errFenced)
	err = metadataClient.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace("team-a").Delete(t.Context(), "db", metav1.DeleteOptions{})
	require.ErrorIs(t, err, errFenced)
	require.Zero(t, reached)
}

// closing is a body that knows whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

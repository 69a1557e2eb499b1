package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
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

		ours.fence.until.Store(&time.Time{})
		require.ErrorIs(t, send("PUT", copies), errFenced, "it does not lead yet")
		require.NoError(t, ours.Create(t.Context(), record("ours")))
		require.NoError(t, send("PUT", copies))
		time.Sleep(9 * time.Second)
		require.NoError(t, ours.Update(t.Context(), record("ours")))
		time.Sleep(9 * time.Second)
		require.NoError(t, send("DELETE", copies))

		time.Sleep(time.Second) // ten seconds after the last renewal
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			require.ErrorIs(t, send(method, copies), errFenced)
		}
		require.Equal(t, requests(3), reached)
		require.NoError(t, send("GET", copies))
		require.NoError(t, send("PUT", leases))
		require.Error(t, ours.Create(t.Context(), record("ours")), "it exists")
		require.ErrorIs(t, send("PUT", copies), errFenced)
		_, _, err := ours.Get(t.Context())
		require.NoError(t, err)
		require.NoError(t, ours.Update(t.Context(), record("ours")))
		require.NoError(t, send("PUT", copies))
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

// closing is a body that knows whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

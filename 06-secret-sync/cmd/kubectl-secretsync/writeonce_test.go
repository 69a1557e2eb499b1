package main

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// busy is an API server that asks to send the first two requests again later.
type busy struct {
	code  int
	verbs []string // of the requests so far
}

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	b.verbs = append(b.verbs, r.Method)
	if len(b.verbs) <= 2 {
		return &http.Response{StatusCode: b.code, Header: http.Header{"Retry-After": {"5"}}, Body: http.NoBody, Request: r}, nil
	}
	return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// B14, B19: an API server that is busy asks for a second try. By then, the source may have been deleted, so client-go must not
// send the same write again: the controller decides again.
func TestAWriteIsNotRepeatedByTheClient(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	for verb, send := range map[string]func(context.Context, typedcorev1.SecretInterface) error{
		http.MethodPost: func(ctx context.Context, secrets typedcorev1.SecretInterface) error {
			_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
			return err
		},
		http.MethodPut: func(ctx context.Context, secrets typedcorev1.SecretInterface) error {
			_, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
			return err
		},
		http.MethodDelete: func(ctx context.Context, secrets typedcorev1.SecretInterface) error {
			return secrets.Delete(ctx, "db", metav1.DeleteOptions{})
		},
		http.MethodGet: func(ctx context.Context, secrets typedcorev1.SecretInterface) error {
			_, err := secrets.List(ctx, metav1.ListOptions{})
			return err
		},
	} {
		for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			synctest.Test(t, func(t *testing.T) {
				server := &busy{code: code}
				client, _, err := clients(&rest.Config{Host: "http://busy", Transport: server}, &fence{})
				require.NoError(t, err)
				for tries := range 2 {
					err = send(t.Context(), client.CoreV1().Secrets("team-a"))
					if verb == http.MethodGet {
						require.True(t, apierrors.IsNotFound(err), "a read may wait: %v", err)
						return
					}
					assert.Len(t, server.verbs, tries+1)
					require.Equal(t, code == http.StatusTooManyRequests, apierrors.IsTooManyRequests(err), "%v", err)
				}
			})
		}
	}
}

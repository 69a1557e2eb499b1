package test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// B24: a Pod that does not end keeps its namespace, and the Secrets there. A source that is revoked is revoked there, too.
func testHeldUpNamespace(t *testing.T) {
	w := newWorld(t)
	w.target("team-a", "team-b")
	w.start()
	for _, name := range []string{"leaked", "leaked-too"} {
		w.share(name, "1")
		w.is("team-a", name, "1")
	}
	w.share("db", "1")
	w.is("team-a", "db", "1")
	_, err := w.client.CoreV1().Pods("team-a").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stuck", Finalizers: []string{"example.com/test"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "stuck", Image: "stuck"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, w.client.CoreV1().Namespaces().Delete(t.Context(), "team-a", metav1.DeleteOptions{}))
	w.Eventually("the Pod", func(ctx context.Context) string { // it is deleted first, and nothing else is yet
		if pod, err := w.client.CoreV1().Pods("team-a").Get(ctx, "stuck", metav1.GetOptions{}); err != nil || pod.DeletionTimestamp == nil {
			return "it is not being deleted"
		}
		return ""
	})
	for _, name := range []string{"leaked", "leaked-too"} {
		require.Equal(t, "1", string(w.secret("team-a", name).Data["password"]))
		w.delete(w.Namespace, name)
		w.isGone("team-a", name)
	}
	w.change("db", "2")
	w.is("team-a", "db", "2")
	w.share("new", "1")
	w.is("team-b", "new", "1")
	w.caughtUp("team-b")
	require.Empty(t, w.history("team-a", "new"))
	_, err = w.client.CoreV1().Pods("team-a").Patch(t.Context(), "stuck", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.Eventually("the namespace", func(ctx context.Context) string {
		if _, err := w.client.CoreV1().Namespaces().Get(ctx, "team-a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "it is still there"
		}
		return ""
	})
}

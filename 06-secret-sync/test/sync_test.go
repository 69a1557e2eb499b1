package test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/history"
	"example.com/controllers/secretsync"
)

// B1, B20: Secrets of others that have the name of a copy.
func testNamesakes(t *testing.T) {
	w := newWorld(t)
	w.target("team-a", "team-b", "team-c")
	theirs := w.own("team-a", "registry", "theirs")
	w.patch("team-a", "registry", fmt.Sprintf(`{"metadata":{"labels":{%q:"true"},"annotations":{%q:"registry"}}}`, secretsync.SharedLabel, secretsync.SourceAnnotation))
	theirs = w.secret(theirs.Namespace, theirs.Name)
	w.start()
	w.share("registry", "1")
	w.is("team-b", "registry", "1")
	w.is("team-c", "registry", "1")
	require.Equal(t, "Not copied to team-a/registry: Secret team-a/registry exists and was not created by this controller; delete or rename it",
		w.event("registry", "NamesakeNotOurs"))

	// A team replaces the copy by a Secret of its own while the controller updates it.
	w.change("registry", "2")
	w.is("team-c", "registry", "2")
	w.is("team-b", "registry", "2")
	w.delete(w.Namespace, "registry")
	w.isGone("team-b", "registry")
	w.isGone("team-c", "registry")
	later := w.own("team-b", "registry", "theirs, too")
	w.share("registry", "3")
	w.is("team-c", "registry", "3")
	w.delete(w.Namespace, "registry")
	w.isGone("team-c", "registry")
	require.Equal(t, theirs, w.secret("team-a", "registry"))
	require.Equal(t, later, w.secret("team-b", "registry"))

	// Once it is gone, the copy is created.
	w.share("registry", "4")
	w.is("team-c", "registry", "4")
	w.delete("team-a", "registry")
	w.is("team-a", "registry", "4")
	require.Equal(t, later, w.secret("team-b", "registry"))
}

// B2: whatever happens to a copy, one write repairs it.
func testRepairs(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	w.start()
	w.share("registry", "1", func(s *corev1.Secret) { s.Data["user"] = []byte("me"); delete(s.Data, "password") })
	is := func() {
		t.Helper()
		w.Eventually("the copy", func(ctx context.Context) string {
			copied, err := w.client.CoreV1().Secrets("team-a").Get(ctx, "registry", metav1.GetOptions{})
			switch {
			case err != nil:
				return err.Error()
			case len(copied.Data) != 1 || string(copied.Data["user"]) != "me":
				return fmt.Sprintf("its data is %q", copied.Data)
			case copied.Labels[secretsync.CopyLabel] != w.Namespace || copied.Annotations[secretsync.CopiedToAnnotation] != "team-a/registry":
				return fmt.Sprintf("its labels are %q, and its annotations %q", copied.Labels, copied.Annotations)
			}
			return ""
		})
	}
	is()
	w.caughtUp("team-a")
	for _, c := range []struct{ what, merge string }{
		{"a key is edited", `{"stringData":{"user":"you"}}`},
		{"a key is added", `{"stringData":{"more":"x"}}`},
		{"a key is removed", `{"data":{"user":null}}`},
		{"all data is removed", `{"data":null}`},
		{"the label is removed", fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, secretsync.CopyLabel)},
		{"an annotation is removed", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, secretsync.CopiedToAnnotation)},
		{"", ""},
	} {
		before := len(w.writesOf("team-a/registry"))
		if c.merge == "" {
			c.what = "it is deleted"
			w.delete("team-a", "registry")
		} else {
			w.patch("team-a", "registry", c.merge)
		}
		is()
		w.caughtUp("team-a")
		writes := w.writesOf("team-a/registry")[before:]
		require.Len(t, slices.DeleteFunc(writes, func(w string) bool { return strings.HasSuffix(w, " 409") }), 1, c.what)
	}
}

// B23: whichever request edits a copy, one write repairs it, the second time as well.
func testEdits(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	w.start()
	w.share("registry", "1")
	w.is("team-a", "registry", "1")
	w.caughtUp("team-a") // and so is the recording
	copies := w.client.CoreV1().Secrets("team-a")
	patch := func(kind types.PatchType, body string, force bool) func(context.Context) error {
		return func(ctx context.Context) error {
			options := metav1.PatchOptions{FieldManager: "other"}
			if kind == types.ApplyYAMLPatchType {
				options.Force = &force
			}
			_, err := copies.Patch(ctx, "registry", kind, []byte(body), options)
			return err
		}
	}
	const edited = `{"stringData":{"password":"edited"}}`
	apply := func(content string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"registry"},` + content + `}`
	}
	for _, edit := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"an update", func(ctx context.Context) error {
			copied, err := copies.Get(ctx, "registry", metav1.GetOptions{})
			if err != nil {
				return err
			}
			copied.Data["password"] = []byte("edited")
			_, err = copies.Update(ctx, copied, metav1.UpdateOptions{})
			return err
		}},
		{"a merge patch", patch(types.MergePatchType, `{"data":{"password":"ZWRpdGVk"}}`, false)},
		{"a strategic merge patch of stringData", patch(types.StrategicMergePatchType, edited, false)},
		{"a JSON patch", patch(types.JSONPatchType, `[{"op":"replace","path":"/data/password","value":"ZWRpdGVk"}]`, false)},
		{"an apply with force", patch(types.ApplyYAMLPatchType, apply(`"data":{"password":"ZWRpdGVk"}`), true)},
		{"an apply of stringData", patch(types.ApplyYAMLPatchType, apply(`"stringData":{"password":"edited"}`), false)},
		{"an apply of stringData with force", patch(types.ApplyYAMLPatchType, apply(`"stringData":{"password":"edited"}`), true)},
		{"an apply of another key", patch(types.ApplyYAMLPatchType, apply(`"stringData":{"more":"x"}`), true)},
		{"managedFields are emptied", patch(types.JSONPatchType, `[{"op":"replace","path":"/metadata/managedFields","value":[{}]},{"op":"replace","path":"/data/password","value":"ZWRpdGVk"}]`, false)},
	} {
		for range 2 {
			before := len(w.writesOf("team-a/registry"))
			require.NoError(t, edit.do(t.Context()), edit.what)
			w.Eventually("the repair after "+edit.what, func(context.Context) string {
				if len(w.writesOf("team-a/registry")) == before {
					return "the controller has not written"
				}
				return ""
			})
			w.is("team-a", "registry", "1")
			w.caughtUp("team-a")
			writes := w.writesOf("team-a/registry")[before:]
			require.Len(t, slices.DeleteFunc(writes, func(w string) bool { return strings.HasSuffix(w, " 409") }), 1, edit.what)
		}
	}
}

// B3, B10: what happens while the controller is down.
func testWhileDown(t *testing.T) {
	w := newWorld(t)
	w.target("team-a", "team-b", "team-c")
	run := w.start()
	for _, name := range []string{"gone", "narrowed", "changed", "unshared"} {
		w.share(name, "1")
		for _, namespace := range []string{"team-a", "team-b", "team-c"} {
			w.is(namespace, name, "1")
		}
	}
	w.stop(run)
	w.delete(w.Namespace, "gone")
	w.patch(w.Namespace, "narrowed", fmt.Sprintf(`{"metadata":{"annotations":{%q:"kubernetes.io/metadata.name=team-a"}}}`, secretsync.NamespacesAnnotation))
	w.patch(w.Namespace, "unshared", fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, secretsync.SharedLabel))
	w.change("changed", "2")
	w.label("team-c", secretsync.CopiesLabel, "")
	w.start()
	for _, namespace := range []string{"team-a", "team-b"} {
		w.is(namespace, "changed", "2")
		w.isGone(namespace, "gone")
		w.isGone(namespace, "unshared")
	}
	w.is("team-a", "narrowed", "1")
	w.isGone("team-b", "narrowed")
	for _, name := range []string{"gone", "narrowed", "changed", "unshared"} {
		w.isGone("team-c", name)
	}
	w.label("team-c", secretsync.CopiesLabel, "true")
	w.is("team-c", "changed", "2")
}

// B10: the controller starts with another selector.
func testAnotherSelector(t *testing.T) {
	w := newWorld(t)
	w.target("team-a", "team-b")
	w.label("team-b", "team", "web")
	run := w.start()
	w.share("registry", "1")
	w.is("team-a", "registry", "1")
	w.is("team-b", "registry", "1")
	w.stop(run)
	w.start("--namespace-selector=team=web")
	w.isGone("team-a", "registry")
	w.is("team-b", "registry", "1")
	require.Len(t, w.history("team-b", "registry"), 1)
}

// B4: the sources cannot be read when the controller starts.
func testColdCache(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	run := w.start()
	w.share("registry", "1")
	w.is("team-a", "registry", "1")
	w.stop(run)
	before := w.secret("team-a", "registry")
	fault, err := apiproxy.ParseFault("resource=secrets,namespace=" + w.Namespace + ",refuse=500")
	require.NoError(t, err)
	require.NoError(t, w.proxy.SetFaults(fault))
	seen := len(w.recording.History().Requests)
	run = w.startWaiting()
	w.Eventually("requests for the sources", func(context.Context) string {
		refused := 0
		for _, r := range w.recording.History().Requests[seen:] {
			if len(r.Injected) > 0 {
				refused++
			}
		}
		if refused < 3 {
			return fmt.Sprintf("%d were refused", refused)
		}
		return ""
	})
	require.NotContains(t, run.Log(), "Caches synced")
	require.NoError(t, w.proxy.SetFaults())
	run.AwaitLog("Caches synced")
	w.caughtUp("team-a")
	require.Equal(t, before, w.secret("team-a", "registry"))
}

// B5, B6: a source is deleted and created again at once, also with another type.
func testRecreatedSource(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	w.start()
	w.share("registry", "1")
	w.is("team-a", "registry", "1")
	w.delete(w.Namespace, "registry")
	w.share("registry", "2")
	w.is("team-a", "registry", "2")
	w.delete(w.Namespace, "registry")
	again := w.share("registry", "3", func(s *corev1.Secret) { s.Type = "example.com/registry" })
	copied := w.is("team-a", "registry", "3")
	require.Equal(t, corev1.SecretType("example.com/registry"), copied.Type)
	require.Equal(t, string(again.UID), copied.Annotations[secretsync.SourceUIDAnnotation])
	for _, v := range w.history("team-a", "registry") {
		require.Len(t, v.secret.Data, 1, "a copy without data")
	}
}

// B7: an immutable copy is deleted and created again, and nothing loops.
func testImmutable(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	run := w.start()
	immutable := func(s *corev1.Secret) { s.Immutable = new(true) }
	w.share("registry", "1", immutable)
	require.True(t, *w.is("team-a", "registry", "1").Immutable)
	w.delete(w.Namespace, "registry")
	w.share("registry", "2", immutable)
	w.is("team-a", "registry", "2")
	w.delete(w.Namespace, "registry")
	w.share("registry", "3")
	require.Nil(t, w.is("team-a", "registry", "3").Immutable)
	// Somebody makes a copy immutable, and adds a label, which stays.
	w.patch("team-a", "registry", `{"immutable":true,"metadata":{"labels":{"team":"a"}}}`)
	w.change("registry", "4")
	copied := w.is("team-a", "registry", "4")
	require.Nil(t, copied.Immutable)
	require.Equal(t, "a", copied.Labels["team"])
	w.caughtUp("team-a")
	// Until the cache shows what somebody did to the copy, a write gets a conflict and is retried: more often on a slow machine.
	all := w.writesOf("team-a/registry")
	require.LessOrEqual(t, len(all), 12, "%q", all)
	writes := slices.DeleteFunc(all, func(w string) bool { return strings.HasSuffix(w, " 409") })
	require.LessOrEqual(t, len(writes), 8, "a create, three times a delete and a create, and an update: %q", writes)

	// Somebody does, and clears the record of it.
	w.stop(run)
	w.patch("team-a", "registry", `{"immutable":true}`)
	w.patch("team-a", "registry", `{"metadata":{"managedFields":[{}]}}`)
	w.change("registry", "5")
	before := len(w.writesOf("team-a/registry"))
	w.start()
	w.is("team-a", "registry", "5")
	w.caughtUp("team-a")
	require.Equal(t, []string{"update team-a/registry 422", "delete team-a/registry 200", "create team-a/registry 201"}, w.writesOf("team-a/registry")[before:])
}

// B8, B9: a namespace that cannot be deleted for a while, and comes back.
func testTerminatingNamespace(t *testing.T) {
	w := newWorld(t)
	w.target("team-a", "team-b")
	w.start()
	w.share("registry", "1")
	w.is("team-a", "registry", "1")
	_, err := w.client.CoreV1().ConfigMaps("team-a").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"example.com/test"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, w.client.CoreV1().Namespaces().Delete(t.Context(), "team-a", metav1.DeleteOptions{}))
	// Until its cache shows the deletion, the controller may try to create copies there. It shows a later namespace after it.
	w.target("team-c")
	w.is("team-c", "registry", "1")
	w.isGone("team-a", "registry")
	before := len(w.writesOf("team-a/registry"))
	for i := range 5 {
		w.change("registry", fmt.Sprint(i+2))
		w.is("team-b", "registry", fmt.Sprint(i+2))
	}
	w.share("another", "1")
	w.is("team-b", "another", "1")
	w.caughtUp("team-b")
	require.LessOrEqual(t, len(w.writesOf("team-a/registry"))-before, 1, "one write may have been under way")
	require.LessOrEqual(t, len(w.writesOf("team-a/another")), 0)
	_, err = w.client.CoreV1().ConfigMaps("team-a").Patch(t.Context(), "kept", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.Eventually("the namespace", func(ctx context.Context) string {
		if _, err := w.client.CoreV1().Namespaces().Get(ctx, "team-a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "it is still there"
		}
		return ""
	})
	w.target("team-a")
	w.is("team-a", "registry", "6")
	w.is("team-a", "another", "1")
}

// B11: two sources whose copies have the same name.
func testTwoSources(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	w.start()
	w.share("b", "older", annotated(secretsync.NameAnnotation, "registry"))
	w.is("team-a", "registry", "older")
	// Creation times have whole seconds. Of two sources that are equally old, the one whose name sorts first wins.
	w.share("z", "younger", annotated(secretsync.NameAnnotation, "registry"))
	require.Equal(t, "Not copied to team-a/registry: Secret team-a/registry is for a copy of b, which has priority for this name", w.event("z", "NameTaken"))
	for _, name := range []string{"b", "z"} {
		w.patch(w.Namespace, name, `{"metadata":{"annotations":{"example.com/touched":"yes"}}}`)
	}
	w.caughtUp("team-a")
	require.Len(t, w.writesOf("team-a/registry"), 1)
	w.delete(w.Namespace, "b")
	w.is("team-a", "registry", "younger")
}

// B12: nothing is written in a quiet minute, as the API server itself counts.
func TestAtRest(t *testing.T) {
	w := newWorld(t)
	w.target("team-a", "team-b", "team-c")
	w.own("team-b", "registry", "theirs")
	w.start()
	w.share("registry", "1")
	w.share("large", strings.Repeat("x", 1<<20))
	w.share("token", "1", annotated(secretsync.KeysAnnotation, "none"))
	w.is("team-a", "registry", "1")
	w.is("team-c", "registry", "1")
	for _, namespace := range []string{"team-a", "team-b", "team-c"} {
		w.is(namespace, "large", strings.Repeat("x", 1<<20))
	}
	w.event("registry", "NamesakeNotOurs")
	w.event("token", "InvalidAnnotation")
	w.caughtUp("team-a", "team-b", "team-c") // with the marker's copies, too
	before, requests := w.counted(), len(w.recording.History().Requests)
	select { // there is nothing to wait for
	case <-time.After(time.Minute):
	case <-t.Context().Done():
	}
	require.Equal(t, before, w.counted())
	for _, r := range w.recording.History().Requests[requests:] {
		require.False(t, r.IsWrite(), "%s %s", r.Verb, r.Object())
	}
}

// B13: a Secret of the largest size is copied, and types that mean nothing elsewhere are not.
func testLargeAndRefused(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	w.start()
	w.share("large", strings.Repeat("x", 1<<20))
	w.is("team-a", "large", strings.Repeat("x", 1<<20))
	_, err := w.client.CoreV1().ServiceAccounts(w.Namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "ci"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.share("ci-token", "", annotated(corev1.ServiceAccountNameKey, "ci"), func(s *corev1.Secret) { s.Type, s.Data = corev1.SecretTypeServiceAccountToken, nil })
	require.Contains(t, w.event("ci-token", "TypeRefused"), "a Secret of type kubernetes.io/service-account-token is not copied: ")
	w.share("release", "1", func(s *corev1.Secret) { s.Type = "helm.sh/release.v1" })
	require.Contains(t, w.event("release", "TypeRefused"), "a Secret of type helm.sh/release.v1 is not copied: ")
	w.caughtUp("team-a")
	require.Empty(t, w.history("team-a", "ci-token"))
	require.Empty(t, w.history("team-a", "release"))
}

// A source may be narrowed to some namespaces and some keys.
func testNarrowed(t *testing.T) {
	w := newWorld(t)
	w.target("team-a", "team-b")
	w.start()
	w.share("registry", "1", func(s *corev1.Secret) { s.Data["private"] = []byte("x") }, annotated(secretsync.KeysAnnotation, "password"),
		annotated(secretsync.NamespacesAnnotation, "kubernetes.io/metadata.name=team-a"))
	w.is("team-a", "registry", "1")
	w.caughtUp("team-b")
	require.Empty(t, w.history("team-b", "registry"))
	w.patch(w.Namespace, "registry", fmt.Sprintf(`{"metadata":{"annotations":{%q:"a in (","example.com/x":"y"}}}`, secretsync.NamespacesAnnotation))
	require.Contains(t, w.event("registry", "InvalidAnnotation"), "is not a label selector")
	w.caughtUp("team-a")
	w.is("team-a", "registry", "1") // a typing error deletes nothing
	w.patch(w.Namespace, "registry", fmt.Sprintf(`{"metadata":{"annotations":{%q:"kubernetes.io/metadata.name=team-b"}}}`, secretsync.NamespacesAnnotation))
	w.isGone("team-a", "registry")
	w.is("team-b", "registry", "1")
}

// B14, B19: a source is deleted while its copies are created, and while they are updated. That stops.
func testDeletedDuringFanOut(t *testing.T) {
	w := newWorld(t)
	names := w.targets(60)
	for _, verb := range []string{"create", "update"} {
		if verb == "update" {
			run := w.start()
			w.share("registry", "1")
			for _, name := range names {
				w.is(name, "registry", "1")
			}
			w.stop(run)
		}
		run := w.start("--workers=1", "--qps=20", "--burst=1")
		before := len(w.writes())
		if verb == "create" {
			w.share("registry", "1")
		} else {
			w.change("registry", "2")
		}
		w.wrote(before, verb, 6)
		w.delete(w.Namespace, "registry")
		for _, name := range names {
			w.isGone(name, "registry")
		}
		writes := w.writes()[before:]
		first := slices.IndexFunc(writes, isDelete)
		require.Positive(t, first)
		require.Less(t, first, len(names), "the source was copied everywhere although it was deleted")
		for _, write := range writes[first:] {
			require.True(t, isDelete(write), "%s after the first delete", write)
		}
		w.stop(run)
	}
}

// B14: deletes go ahead of what has waited for longer: here, the copies of another source.
func testDeletesGoFirst(t *testing.T) {
	w := newWorld(t)
	names := w.targets(60)
	run := w.start()
	w.share("registry", "1")
	for _, name := range names {
		w.is(name, "registry", "1")
	}
	w.stop(run)
	run = w.start("--workers=1", "--qps=5", "--burst=1")
	before := len(w.writes())
	w.share("waits", "1")
	w.wrote(before, "create", 6)
	w.delete(w.Namespace, "registry")
	w.wrote(before, "delete", 6)
	writes := w.writes()[before:]
	// In a queue without an order of its own, all of the other source's copies would be made before the first delete.
	require.Less(t, slices.IndexFunc(writes, isDelete), len(names), "the deletes waited for the copies of another source")
	w.stop(run)
}

func isDelete(write string) bool { return strings.HasPrefix(write, "delete ") }

// B15: Secrets that have nothing to do with the controller are not read.
func testUnrelatedSecrets(t *testing.T) {
	w := newWorld(t)
	w.target("team-a", "team-b")
	for i := range 30 {
		w.own("team-b", fmt.Sprintf("unrelated-%d", i), strings.Repeat("x", 100_000))
		w.own(w.Namespace, fmt.Sprintf("not-shared-%d", i), strings.Repeat("x", 100_000))
	}
	w.start()
	w.share("registry", "1")
	w.is("team-a", "registry", "1")
	w.patch("team-b", "unrelated-3", `{"stringData":{"more":"x"}}`)
	w.caughtUp("team-b")
	h, received := w.recording.History(), int64(0)
	for _, r := range h.Requests {
		received += r.Received
	}
	for _, e := range h.Events {
		received += int64(e.Bytes)
		require.NotContains(t, e.Name, "unrelated")
		require.NotContains(t, e.Name, "not-shared")
	}
	require.Less(t, received, int64(100_000), "bytes that the controller has received")
}

// B16: nothing that the controller writes or says has a byte of a Secret, whatever fails.
func testNoSecretBytes(t *testing.T) {
	w := newWorld(t)
	const value = "hunter2-is-my-password"
	w.target("team-a", "team-b")
	w.own("team-b", "registry", value)
	run := w.start("--v=7")
	fault, err := apiproxy.ParseFault("verb=create,resource=secrets,namespace=team-a,refuse=500,for=1s")
	require.NoError(t, err)
	require.NoError(t, w.proxy.SetFaults(fault))
	w.share("registry", value)
	w.is("team-a", "registry", value)
	w.share("not-a-certificate", value, annotated(secretsync.KeysAnnotation, "password"), func(s *corev1.Secret) {
		s.Type = corev1.SecretTypeBasicAuth
		s.Data["username"] = []byte(value)
	})
	w.is("team-a", "not-a-certificate", value)
	w.patch(w.Namespace, "not-a-certificate", fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, secretsync.KeysAnnotation))
	w.event("not-a-certificate", "InvalidAnnotation")
	w.event("registry", "NamesakeNotOurs")
	var recording bytes.Buffer
	h := w.recording.History()
	for i := range h.Requests {
		require.NoError(t, history.Write(&recording, history.Record{Request: &h.Requests[i]}))
	}
	events, err := w.client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	eventText, err := json.Marshal(events)
	require.NoError(t, err)
	metrics := w.metrics(run)
	require.Contains(t, metrics, "secretsync_copies")
	for where, text := range map[string]string{"the log": run.Log(), "Events": string(eventText), "metrics": metrics, "the recording": recording.String()} {
		for _, secret := range []string{value, base64.StdEncoding.EncodeToString([]byte(value)), fmt.Sprintf("%x", value)} {
			require.NotContains(t, text, secret, where)
		}
	}
	annotations, err := json.Marshal(w.secret("team-a", "registry").ObjectMeta)
	require.NoError(t, err)
	require.NotContains(t, string(annotations), value)
}

// What others have put on a source is not copied: owners, whom the garbage collector would not find in the other namespace, and
// kubectl's annotation with the data.
func testMetadataIsNotCopied(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	w.start()
	owner, err := w.client.CoreV1().ConfigMaps(w.Namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.share("registry", "1", annotated(corev1.LastAppliedConfigAnnotation, "1"), func(s *corev1.Secret) {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		s.Finalizers = []string{"example.com/test"}
	})
	copied := w.is("team-a", "registry", "1")
	require.Empty(t, copied.OwnerReferences)
	require.Empty(t, copied.Finalizers)
	require.NotContains(t, copied.Annotations, corev1.LastAppliedConfigAnnotation)
	require.NotContains(t, copied.Labels, secretsync.SharedLabel)
	w.delete(w.Namespace, "registry") // somebody's finalizer keeps it
	w.isGone("team-a", "registry")
	w.patch(w.Namespace, "registry", `{"metadata":{"finalizers":null}}`)
}

// B18: several changes at once.
func testManyChanges(t *testing.T) {
	w := newWorld(t)
	names := w.targets(100)
	w.start()
	w.share("registry", "0")
	for _, name := range names {
		w.is(name, "registry", "0")
	}
	before := len(w.writes())
	for i := range 5 {
		w.change("registry", fmt.Sprint(i+1))
	}
	for _, name := range names {
		w.is(name, "registry", "5")
		last := ""
		for _, v := range w.history(name, "registry") {
			value := string(v.secret.Data["password"])
			require.NotEqual(t, watch.Deleted, v.kind)
			require.GreaterOrEqual(t, value, last, "it went back")
			last = value
		}
	}
	w.caughtUp("team-1")
	writes := w.writes()[before:]
	require.LessOrEqual(t, len(writes), 5*len(names)+2*len(names), "at most one write per change and copy, and the marker's")
	for _, write := range writes {
		require.NotContains(t, write, " 409")
	}
}

// The controller of a source namespace that does not exist says so, and the copies of others stay, also when it has begun to work.
// The manifests' account may not make copies of another namespace, and would be deleted with its own, so these controllers have
// another account.
func testNoSourceNamespace(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	run := w.start()
	w.share("registry", "1")
	w.is("team-a", "registry", "1")
	w.stop(run)
	before := w.secret("team-a", "registry")
	run = clustertest.StartProgram(t, w.program, controllerArgs(w.Cluster.Kubeconfig, "mistyped")...)
	run.AwaitLog("The source namespace does not exist")
	w.Kubectl("create", "namespace", "mistyped")
	w.Kubectl("create", "secret", "generic", "marker", "--namespace=mistyped", "--from-literal=password=x")
	w.Kubectl("label", "secret", "marker", "--namespace=mistyped", secretsync.SharedLabel+"=true")
	w.is("team-a", "marker", "x")
	w.stop(run)
	require.Equal(t, before, w.secret("team-a", "registry"))

	// If it is deleted, so are its sources, and so are their copies.
	run = clustertest.StartProgram(t, w.program, controllerArgs(w.Cluster.Kubeconfig, w.Namespace)...)
	run.AwaitLog("Caches synced")
	require.NoError(t, w.client.CoreV1().Namespaces().Delete(t.Context(), w.Namespace, metav1.DeleteOptions{}))
	w.isGone("team-a", "registry")
}

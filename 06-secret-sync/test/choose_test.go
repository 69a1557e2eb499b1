package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/secretsync"
)

// A source that lists too few keys for its type is refused exactly if the API server would refuse the copy; as Opaque, it is copied.
func testTypes(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	keys := map[corev1.SecretType][]string{
		corev1.SecretTypeTLS:              {corev1.TLSCertKey, corev1.TLSPrivateKeyKey, "ca.crt"},
		corev1.SecretTypeDockerConfigJson: {corev1.DockerConfigJsonKey, "more"},
		corev1.SecretTypeDockercfg:        {corev1.DockerConfigKey, "more"},
		corev1.SecretTypeSSHAuth:          {corev1.SSHAuthPrivateKey, "more"},
		corev1.SecretTypeBasicAuth:        {corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey, "more"},
		corev1.SecretTypeOpaque:           {"one", "more"},
		"example.com/own":                 {"one", "more"},
	}
	for kind, all := range keys {
		for subset := 1; subset < 1<<len(all); subset++ {
			source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: kind, Data: map[string][]byte{}}
			var listed []string
			for i, key := range all {
				source.Data[key] = []byte("{}")
				if subset&(1<<i) != 0 {
					listed = append(listed, key)
				}
			}
			source.Annotations = map[string]string{secretsync.KeysAnnotation: strings.Join(listed, ",")}
			for _, as := range []string{"", "Opaque"} {
				if as != "" {
					source.Annotations[secretsync.CopyTypeAnnotation] = as
				}
				parsed := secretsync.ParseSource(source)
				_, err := w.client.CoreV1().Secrets("team-a").Create(t.Context(), &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: parsed.Type, Data: parsed.Data,
				}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				require.Equal(t, err == nil, parsed.Problem == nil, "%s as %q, %q: %v", kind, as, listed, err)
				require.True(t, err == nil || apierrors.IsInvalid(err), "%v", err)
			}
		}
	}

	w.start()
	const certificate = `{"metadata":{"annotations":{%q:%q}}}`
	w.share("ca", "", annotated(secretsync.KeysAnnotation, "ca.crt"), annotated(secretsync.CopyTypeAnnotation, "Opaque"), func(s *corev1.Secret) {
		s.Type, s.Data = corev1.SecretTypeTLS, map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k"), "ca.crt": []byte("ca")}
	})
	has := func(kind corev1.SecretType, keys int) {
		t.Helper()
		w.Eventually("the copy", func(ctx context.Context) string {
			copied, err := w.client.CoreV1().Secrets("team-a").Get(ctx, "ca", metav1.GetOptions{})
			switch {
			case err != nil:
				return err.Error()
			case copied.Type != kind || len(copied.Data) != keys:
				return fmt.Sprintf("it is of type %s, and has %d keys", copied.Type, len(copied.Data))
			}
			return ""
		})
	}
	has(corev1.SecretTypeOpaque, 1)
	for range 2 {
		w.patch(w.Namespace, "ca", fmt.Sprintf(certificate, secretsync.CopyTypeAnnotation, "example.com/ca"))
		has("example.com/ca", 1)
		w.patch(w.Namespace, "ca", fmt.Sprintf(certificate, secretsync.CopyTypeAnnotation, "kubernetes.io/tls")) // a mistake
		w.caughtUp("team-a")
		has("example.com/ca", 1)
		w.patch(w.Namespace, "ca", fmt.Sprintf(certificate, secretsync.CopyTypeAnnotation, "Opaque"))
		has(corev1.SecretTypeOpaque, 1)
	}
	require.Contains(t, w.event("ca", "InvalidAnnotation"), "is kubernetes.io/tls, which requires tls.crt and tls.key, and that is not copied")
}

// A source says which of its labels and annotations its copies get. A policy may demand one of all Secrets.
func testLabelsThatAreAskedFor(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	w.start()
	const ask = `{"metadata":{"labels":{"owner":%s,"other":"x"},"annotations":{"doc":"x","other":"x",%q:%s,%q:%s}}}`
	edit := func(owner, labels, annotations string) {
		t.Helper()
		w.patch(w.Namespace, "registry", fmt.Sprintf(ask, owner, secretsync.LabelsAnnotation, labels, secretsync.AnnotationsAnnotation, annotations))
	}
	has := func(owner, doc, theirs string) {
		t.Helper()
		w.Eventually("the copy", func(ctx context.Context) string {
			copied, err := w.client.CoreV1().Secrets("team-a").Get(ctx, "registry", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			got := []string{copied.Labels["owner"], copied.Annotations["doc"], copied.Labels["theirs"], copied.Labels["other"] + copied.Annotations["other"]}
			if want := []string{owner, doc, theirs, ""}; fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Sprintf("it has %q", got)
			}
			return ""
		})
	}
	w.share("registry", "1")
	w.is("team-a", "registry", "1")
	w.patch("team-a", "registry", `{"metadata":{"labels":{"theirs":"x"}}}`)
	for range 2 {
		edit(`"us"`, `"owner"`, `"doc"`)
		has("us", "x", "x")
		edit(`"them"`, `"owner"`, `"doc"`)
		has("them", "x", "x")
		w.patch("team-a", "registry", `{"metadata":{"labels":{"owner":"edited"}}}`)
		has("them", "x", "x")
		edit(`"them"`, `null`, `"doc"`)
		has("", "x", "x")
		edit(`"them"`, `"none"`, `"doc"`) // a mistake
		w.caughtUp("team-a")
		has("", "x", "x")
		edit(`"us"`, `null`, `null`)
		has("", "", "x")
	}
	before := len(w.writesOf("team-a/registry"))
	w.caughtUp("team-a")
	require.Len(t, w.writesOf("team-a/registry"), before, "it is at rest")

	// The copies of a source without the label are refused, and then there is a remedy.
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owners}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE]}]
  validations: [{expression: "object.metadata.?labels.?owner.hasValue()", message: "a Secret needs an owner"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owners}
spec: {policyName: owners, validationActions: [Deny]}
`), 0o600))
	w.Kubectl("apply", "--filename", policy)
	w.Eventually("the policy", func(ctx context.Context) string {
		_, err := w.client.CoreV1().Secrets("team-a").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) {
			return "it is not enforced"
		}
		return ""
	})
	w.share("db", "1", func(s *corev1.Secret) { s.Labels["owner"] = "us" })
	require.Contains(t, w.event("db", "Rejected"), "a ValidatingAdmissionPolicy denies it")
	w.patch(w.Namespace, "db", fmt.Sprintf(`{"metadata":{"annotations":{%q:"owner"}}}`, secretsync.LabelsAnnotation))
	require.Equal(t, "us", w.is("team-a", "db", "1").Labels["owner"])
}

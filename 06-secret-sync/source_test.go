package secretsync

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestParseSource(t *testing.T) {
	for _, test := range []struct {
		name    string
		options []secretOption
		keys    []string
		reason  Reason
		message string
	}{
		{name: "plain", keys: []string{"password", "user"}},
		{name: "keys", options: []secretOption{annotated(KeysAnnotation, " user , password ")}, keys: []string{"password", "user"}},
		{name: "one key", options: []secretOption{annotated(KeysAnnotation, "user")}, keys: []string{"user"}},
		{name: "missing key", options: []secretOption{annotated(KeysAnnotation, "user,none")}, keys: []string{"user"}, reason: InvalidAnnotation,
			message: `annotation secretsync.controllers.example.com/keys lists the key "none", which the Secret does not have; existing copies are left as they are`},
		{name: "no keys", options: []secretOption{annotated(KeysAnnotation, "")}, reason: InvalidAnnotation,
			message: `annotation secretsync.controllers.example.com/keys lists the key "", which the Secret does not have; existing copies are left as they are`},
		{name: "selector", options: []secretOption{annotated(NamespacesAnnotation, "a in")}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: `annotation secretsync.controllers.example.com/namespaces is not a label selector: unable to parse requirement: found '' expected: '('; existing copies are left as they are`},
		{name: "empty selector", options: []secretOption{annotated(NamespacesAnnotation, "")}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: "annotation secretsync.controllers.example.com/namespaces is empty; to select all namespaces, remove it; existing copies are left as they are"},
		{name: "blank selector", options: []secretOption{annotated(NamespacesAnnotation, " \t")}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: "annotation secretsync.controllers.example.com/namespaces is empty"},
		{name: "name", options: []secretOption{annotated(NameAnnotation, "A")}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: `annotation secretsync.controllers.example.com/name is "A", which is not a name: a lowercase RFC 1123 subdomain`},
		{name: "labels", options: []secretOption{labelled("owner", "us"), annotated(LabelsAnnotation, "owner")}, keys: []string{"password", "user"}},
		{name: "missing label", options: []secretOption{annotated(LabelsAnnotation, "owner")}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: `annotation secretsync.controllers.example.com/labels lists the label "owner", which the Secret does not have; existing copies are left as they are`},
		{name: "label of ours", options: []secretOption{labelled(SharedLabel, "true"), annotated(LabelsAnnotation, SharedLabel)}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: "annotation secretsync.controllers.example.com/labels lists secretsync.controllers.example.com/shared, which is for this controller, and is not copied; existing"},
		{name: "missing annotation", options: []secretOption{annotated(AnnotationsAnnotation, "doc, ")}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: `annotation secretsync.controllers.example.com/annotations lists the annotation "", which the Secret does not have; existing`},
		{name: "annotation of ours", options: []secretOption{annotated(AnnotationsAnnotation, NameAnnotation)}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: "annotation secretsync.controllers.example.com/annotations lists secretsync.controllers.example.com/name, which is for this controller"},
		{name: "annotation of kubectl", options: []secretOption{annotated(corev1.LastAppliedConfigAnnotation, "{}"), annotated(AnnotationsAnnotation, corev1.LastAppliedConfigAnnotation)}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: "annotation secretsync.controllers.example.com/annotations lists kubectl.kubernetes.io/last-applied-configuration, which holds the data of the Secret, and is not copied"},
		{name: "copy type", options: []secretOption{annotated(CopyTypeAnnotation, "x")}, keys: []string{"password", "user"}},
		{name: "no copy type", options: []secretOption{annotated(CopyTypeAnnotation, " ")}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: "annotation secretsync.controllers.example.com/copy-type is empty; for the type of the source, Opaque, remove it; existing"},
		{name: "copy type that is refused", options: []secretOption{annotated(CopyTypeAnnotation, "helm.sh/release.v1")}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: "annotation secretsync.controllers.example.com/copy-type is helm.sh/release.v1, which copies cannot have: it is Helm's record"},
		{name: "copy type of a source that is refused", options: []secretOption{typed(corev1.SecretTypeServiceAccountToken), annotated(CopyTypeAnnotation, "Opaque")}, keys: []string{"password", "user"}, reason: TypeRefused},
		{name: "token", options: []secretOption{typed(corev1.SecretTypeServiceAccountToken)}, keys: []string{"password", "user"}, reason: TypeRefused,
			message: "a Secret of type kubernetes.io/service-account-token is not copied: it is the token of one ServiceAccount"},
		{name: "bootstrap token", options: []secretOption{typed(corev1.SecretTypeBootstrapToken)}, keys: []string{"password", "user"}, reason: TypeRefused},
		{name: "release", options: []secretOption{typed("helm.sh/release.v1")}, keys: []string{"password", "user"}, reason: TypeRefused},
		{name: "the largest", options: []secretOption{func(s *corev1.Secret) { s.Data = map[string][]byte{"a": make([]byte, corev1.MaxSecretSize)} }}, keys: []string{"a"}},
		{name: "too large", options: []secretOption{func(s *corev1.Secret) { s.Data = map[string][]byte{"a": make([]byte, corev1.MaxSecretSize+1)} }}, keys: []string{"a"}, reason: TooLarge,
			message: "its data has 1048577 bytes, and a Secret can have at most 1048576"},
		{name: "too large together", options: []secretOption{func(s *corev1.Secret) {
			s.Data = map[string][]byte{"a": make([]byte, corev1.MaxSecretSize/2), "b": make([]byte, corev1.MaxSecretSize/2+1)}
		}}, keys: []string{"a", "b"}, reason: TooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			source := testSource("db", test.options...)
			require.Len(t, source.Data, len(test.keys))
			for _, key := range test.keys {
				require.Contains(t, source.Data, key)
			}
			if test.reason == "" {
				require.Nil(t, source.Problem)
				return
			}
			require.NotNil(t, source.Problem)
			require.Equal(t, test.reason, source.Problem.Reason)
			require.True(t, strings.HasPrefix(source.Problem.Message, test.message), source.Problem.Message)
		})
	}
}

// The API server rejects a copy without the keys that its type requires.
func TestKeysThatTheTypeRequires(t *testing.T) {
	for _, test := range []struct {
		kind     corev1.SecretType
		has      string // keys of the source
		keys     string // the annotation
		required string // what the annotation has to list; "" for nothing else
	}{
		{corev1.SecretTypeTLS, "tls.crt,tls.key,ca.crt", "ca.crt", "tls.crt and tls.key"},
		{corev1.SecretTypeTLS, "tls.crt,tls.key,ca.crt", "tls.crt", "tls.key"},
		{corev1.SecretTypeTLS, "tls.crt,tls.key,ca.crt", "tls.key,ca.crt", "tls.crt"},
		{corev1.SecretTypeTLS, "tls.crt,tls.key,ca.crt", "tls.crt,tls.key", ""},
		{corev1.SecretTypeDockerConfigJson, ".dockerconfigjson,more", "more", ".dockerconfigjson"},
		{corev1.SecretTypeDockerConfigJson, ".dockerconfigjson,more", ".dockerconfigjson", ""},
		{corev1.SecretTypeDockercfg, ".dockercfg,more", "more", ".dockercfg"},
		{corev1.SecretTypeDockercfg, ".dockercfg,more", ".dockercfg", ""},
		{corev1.SecretTypeSSHAuth, "ssh-privatekey,more", "more", "ssh-privatekey"},
		{corev1.SecretTypeSSHAuth, "ssh-privatekey,more", "ssh-privatekey", ""},
		{corev1.SecretTypeBasicAuth, "username,password,more", "more", "username or password"},
		{corev1.SecretTypeBasicAuth, "username,password,more", "username", ""},
		{corev1.SecretTypeBasicAuth, "username,password,more", "password,more", ""},
	} {
		source := testSource("db", typed(test.kind), annotated(KeysAnnotation, test.keys), func(s *corev1.Secret) {
			s.Data = map[string][]byte{}
			for _, key := range strings.Split(test.has, ",") {
				s.Data[key] = []byte("{}")
			}
		})
		if test.required == "" {
			require.Nil(t, source.Problem, "%s of %s", test.keys, test.kind)
			continue
		}
		require.Equal(t, &Problem{InvalidAnnotation, "annotation secretsync.controllers.example.com/keys does not list " + test.required +
			", which the type " + string(test.kind) + " requires; list it, or set secretsync.controllers.example.com/copy-type to the type that the copies should have, such as Opaque; " +
			"existing copies are left as they are"}, source.Problem, "%s of %s", test.keys, test.kind)
		source.secret.Annotations[CopyTypeAnnotation] = "Opaque"
		source = ParseSource(source.secret)
		require.Nil(t, source.Problem, "%s of %s as Opaque", test.keys, test.kind)
		require.Equal(t, corev1.SecretTypeOpaque, source.Type)
		source.secret.Annotations[CopyTypeAnnotation] = string(test.kind)
		require.Equal(t, &Problem{InvalidAnnotation, "annotation secretsync.controllers.example.com/copy-type is " + string(test.kind) +
			", which requires " + test.required + ", and that is not copied; existing copies are left as they are"}, ParseSource(source.secret).Problem)
	}
}

func TestTheHashChangesWithWhatIsCopied(t *testing.T) {
	seen := map[string]string{}
	for name, options := range map[string][]secretOption{
		"plain":     nil,
		"UID":       {func(s *corev1.Secret) { s.UID = types.UID("new") }},
		"type":      {typed("x")},
		"immutable": {immutable},
		"value":     {with("password", "2")},
		"key":       {with("more", "")},
		"keys":      {annotated(KeysAnnotation, "user")},
		"shifted": {func(s *corev1.Secret) {
			s.Data = map[string][]byte{"userm": []byte("e"), "password": []byte(secretValue)}
		}},
	} {
		hash := testSource("db", options...).Hash
		require.NotEmpty(t, hash)
		require.Empty(t, seen[hash], "%s and %s have the same hash", seen[hash], name)
		seen[hash] = name
	}
	require.Equal(t, testSource("db").Hash, testSource("db", annotated("a", "b")).Hash, "what is not copied does not count")
	require.Equal(t, testSource("db").Hash, testSource("db", annotated("a", "b"), annotated(AnnotationsAnnotation, "a")).Hash, "what is in the metadata does not count")
	require.NotEqual(t, testSource("db").wants, testSource("db", annotated("a", "b"), annotated(AnnotationsAnnotation, "a")).wants)
	require.NotEqual(t, testSource("db").wants, testSource("db", labelled("a", "b"), annotated(LabelsAnnotation, "a")).wants)
}

// A copy that an earlier version of the controller has written is not written again by this one, and the other way round: the hash
// and the record in managedFields are as they were.
func TestCopiesOfEarlierVersionsAreUpToDate(t *testing.T) {
	source := testSource("db")
	require.Equal(t, "0ff08db8d33f4fd13851a4eadffc5c45", source.Hash)
	require.Equal(t, `{"f:data":{".":{},"f:password":{},"f:user":{}},"f:metadata":{"f:annotations":{".":{},`+
		`"f:secretsync.controllers.example.com/content-hash":{},"f:secretsync.controllers.example.com/copied-to":{},"f:secretsync.controllers.example.com/source":{},`+
		`"f:secretsync.controllers.example.com/source-uid":{},"f:secretsync.controllers.example.com/type":{}},`+
		`"f:labels":{".":{},"f:secretsync.controllers.example.com/copied-from":{}}},"f:type":{}}`, source.fields)
}

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
		{name: "name", options: []secretOption{annotated(NameAnnotation, "A")}, keys: []string{"password", "user"}, reason: InvalidAnnotation,
			message: `annotation secretsync.controllers.example.com/name is "A", which is not a name: a lowercase RFC 1123 subdomain`},
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
}

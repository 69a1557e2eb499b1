package secretsync

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// refusedTypes are the types that are not copied. Each means something only where it was created.
var refusedTypes = map[corev1.SecretType]string{
	corev1.SecretTypeServiceAccountToken: "it is the token of one ServiceAccount, and the API server deletes a copy without it",
	corev1.SecretTypeBootstrapToken:      "it lets machines join the cluster, and is used in kube-system only",
	"helm.sh/release.v1":                 "it is Helm's record of a release in one namespace",
}

// RefusedTypes returns the types that are not copied, in order. The ValidatingAdmissionPolicy in manifests refuses the same ones.
func RefusedTypes() []corev1.SecretType { return slices.Sorted(maps.Keys(refusedTypes)) }

// requiredKeys are the keys without which the API server rejects a Secret of a type. Of the keys in one list, any is enough.
var requiredKeys = map[corev1.SecretType][][]string{
	corev1.SecretTypeTLS:              {{corev1.TLSCertKey}, {corev1.TLSPrivateKeyKey}},
	corev1.SecretTypeDockerConfigJson: {{corev1.DockerConfigJsonKey}},
	corev1.SecretTypeDockercfg:        {{corev1.DockerConfigKey}},
	corev1.SecretTypeSSHAuth:          {{corev1.SSHAuthPrivateKey}},
	corev1.SecretTypeBasicAuth:        {{corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey}},
}

// chooseType sets the type of the copies: that of the source, or the one that the source asks for. It is invalid if the keys that
// are copied are not enough for it: an immutable copy would be deleted, and the API server would reject the new one.
func (s *Source) chooseType(invalid func(annotation, format string, args ...any)) {
	chosen, isChosen := s.secret.Annotations[CopyTypeAnnotation]
	if isChosen {
		s.Type = corev1.SecretType(strings.TrimSpace(chosen))
		if why, refused := refusedTypes[s.Type]; refused {
			invalid(CopyTypeAnnotation, "is %s, which copies cannot have: %s", s.Type, why)
			return
		}
		if s.Type == "" {
			invalid(CopyTypeAnnotation, "is empty; for the type of the source, %s, remove it", s.secret.Type)
			return
		}
	}
	var missing []string
	for _, anyOf := range requiredKeys[s.Type] {
		if !slices.ContainsFunc(anyOf, func(key string) bool { _, ok := s.Data[key]; return ok }) {
			missing = append(missing, strings.Join(anyOf, " or "))
		}
	}
	switch keys := strings.Join(missing, " and "); {
	case keys == "":
	case isChosen:
		invalid(CopyTypeAnnotation, "is %s, which requires %s, and that is not copied", s.Type, keys)
	default:
		invalid(KeysAnnotation, "does not list %s, which the type %s requires; list it, or set %s to the type that the copies should have, such as Opaque", keys, s.Type, CopyTypeAnnotation)
	}
}

package secretsync

import (
	"fmt"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Selector selects namespaces by their labels.
type Selector = labels.Selector

// Source is a Secret that is shared. Callers must not modify it.
type Source struct {
	Name      string
	UID       types.UID
	Created   metav1.Time
	CopyName  string            // name of its copies
	Selector  Selector          // of the namespaces that get a copy, among those that the controller selects
	Type      corev1.SecretType // of its copies
	Immutable bool
	Data      map[string][]byte // what is copied
	Hash      string            // of what is copied, but for labels and annotations
	// Problem says why it is not copied anywhere; nil if it is.
	Problem *Problem

	secret      *corev1.Secret
	labels      map[string]string // that are copied
	annotations map[string]string // that are copied
	fields      string            // all that is written in a copy, as an entry in managedFields has it
	wants       string            // hash of all that a copy gets, with its labels and annotations
}

// Problem is a reason not to copy, and a message for users. It holds no part of a Secret's data.
type Problem struct {
	Reason  Reason
	Message string
}

// ParseSource returns what a shared Secret asks for.
func ParseSource(secret *corev1.Secret) *Source {
	s := &Source{
		Name: secret.Name, UID: secret.UID, Created: secret.CreationTimestamp, CopyName: copyName(secret), Selector: labels.Everything(),
		Type: secret.Type, Immutable: secret.Immutable != nil && *secret.Immutable, Data: secret.Data, secret: secret,
	}
	invalid := func(annotation, format string, args ...any) {
		s.Problem = &Problem{InvalidAnnotation, fmt.Sprintf("annotation %s %s; existing copies are left as they are", annotation, fmt.Sprintf(format, args...))}
	}
	if text, ok := secret.Annotations[KeysAnnotation]; ok {
		s.Data = map[string][]byte{}
		for key := range names(text) {
			if value, ok := secret.Data[key]; ok {
				s.Data[key] = value
			} else {
				invalid(KeysAnnotation, "lists the key %q, which the Secret does not have", key)
			}
		}
	}
	s.chooseType(invalid)
	s.labels = chosen(secret.Labels, LabelsAnnotation, secret.Annotations, "label", invalid)
	s.annotations = chosen(secret.Annotations, AnnotationsAnnotation, secret.Annotations, "annotation", invalid)
	if text, ok := secret.Annotations[NamespacesAnnotation]; ok {
		if selector, err := labels.Parse(text); err != nil {
			invalid(NamespacesAnnotation, "is not a label selector: %v", err)
		} else if selector.Empty() {
			invalid(NamespacesAnnotation, "is empty; to select all namespaces, remove it")
		} else {
			s.Selector = selector
		}
	}
	if problems := validation.IsDNS1123Subdomain(s.CopyName); len(problems) > 0 {
		invalid(NameAnnotation, "is %q, which is not a name: %s", s.CopyName, problems[0])
	}
	size := 0
	for _, value := range s.Data {
		size += len(value)
	}
	if why, refused := refusedTypes[secret.Type]; refused {
		s.Problem = &Problem{TypeRefused, fmt.Sprintf("a Secret of type %s is not copied: %s", secret.Type, why)}
	} else if size > corev1.MaxSecretSize && s.Problem == nil {
		s.Problem = &Problem{TooLarge, fmt.Sprintf("its data has %d bytes, and a Secret can have at most %d", size, corev1.MaxSecretSize)}
	}
	s.Hash, s.fields = s.hash(), s.fieldsV1()
	s.wants = s.hashWithMetadata()
	return s
}

// names returns the names in an annotation that lists them, separated by commas.
func names(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range strings.SplitSeq(text, ",") {
			if !yield(strings.TrimSpace(name)) {
				return
			}
		}
	}
}

// copyName returns the name of the copies of a source.
func copyName(secret *corev1.Secret) string {
	if name, ok := secret.Annotations[NameAnnotation]; ok {
		return name
	}
	return secret.Name
}

// compareSources orders the sources that want the same copy. The first one gets it: the oldest, and of two that were created
// in the same second, the one whose name sorts first.
func compareSources(a, b *Source) int {
	if byAge := a.Created.Compare(b.Created.Time); byAge != 0 {
		return byAge
	}
	return strings.Compare(a.Name, b.Name)
}

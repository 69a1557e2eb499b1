package secretsync

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// A copy gets no label and no annotation of its source, unless the source names them: they mean something to other programs, and
// not each of them should take a copy for what the source is.

// chosen returns those labels, or annotations, of a source that an annotation lists.
func chosen(from map[string]string, annotation string, annotations map[string]string, kind string, invalid func(annotation, format string, args ...any)) map[string]string {
	text, ok := annotations[annotation]
	if !ok {
		return nil
	}
	values := map[string]string{}
	for name := range names(text) {
		value, ok := from[name]
		switch {
		case strings.HasPrefix(name, Prefix):
			invalid(annotation, "lists %s, which is for this controller, and is not copied", name)
		case name == corev1.LastAppliedConfigAnnotation:
			invalid(annotation, "lists %s, which holds the data of the Secret, and is not copied", name)
		case !ok:
			invalid(annotation, "lists the %s %q, which the Secret does not have", kind, name)
		default:
			values[name] = value
		}
	}
	return values
}

// labelsOf returns the labels of the copies of a source.
func (s Scope) labelsOf(source *Source) map[string]string {
	all := map[string]string{CopyLabel: s.SourceNamespace}
	maps.Copy(all, source.labels)
	return all
}

// annotationsAt returns the annotations of the copy at the key.
func (s *Source) annotationsAt(key cache.ObjectName) map[string]string {
	all := s.marks(key)
	maps.Copy(all, s.annotations)
	return all
}

// list returns the names in a map, as an annotation lists them.
func list(values map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(values)), ",")
}

// withdraw removes from the metadata of a copy all that it has got from its source.
func withdraw(copied *metav1.ObjectMeta) {
	for name := range names(copied.Annotations[CopiedLabelsAnnotation]) {
		delete(copied.Labels, name)
	}
	for name := range names(copied.Annotations[CopiedAnnotationsAnnotation]) {
		delete(copied.Annotations, name)
	}
	delete(copied.Annotations, CopiedLabelsAnnotation)
	delete(copied.Annotations, CopiedAnnotationsAnnotation)
}

// compareMetadata says what is wrong with the labels and annotations of our copy; "" if nothing is.
func (in Input) compareMetadata(source *Source) string {
	has, want := in.Copy.Annotations, source.annotationsAt(in.Key)
	switch {
	case has[CopiedLabelsAnnotation] != want[CopiedLabelsAnnotation], has[CopiedAnnotationsAnnotation] != want[CopiedAnnotationsAnnotation]:
		return "its source asks for other labels or annotations"
	case in.Copy.Labels[CopyLabel] != in.SourceNamespace:
		return "its label has been removed"
	case !isSubset(want, has):
		return "its annotations differ from what they should be"
	case !isSubset(source.labels, in.Copy.Labels):
		return "its labels differ from what they should be"
	}
	return ""
}

// isSubset reports whether all has each of some, with its value.
func isSubset(some, all map[string]string) bool {
	for name, value := range some {
		if got, ok := all[name]; !ok || got != value {
			return false
		}
	}
	return true
}

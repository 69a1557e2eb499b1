package secretsync

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/cache"
)

// A selector that selects no namespace at all is taken for a mistake: a list of names, a misspelt label, two requirements that
// exclude each other. All of them parse, and all copies would go. So it is a problem of the source like a selector that does not
// parse, and the copies stay.

// nowhere returns the source with that problem.
func (s *Source) nowhere() *Source {
	text := s.secret.Annotations[NamespacesAnnotation]
	hint := ""
	if names := namesIn(text); names != "" {
		hint = fmt.Sprintf("; it selects labels, and for the namespaces with these names, it has to be %q", fmt.Sprintf("%s in (%s)", corev1.LabelMetadataName, names))
	}
	held := *s
	held.Selector = labels.Everything() // of the namespaces in which there may be copies
	held.Problem = &Problem{InvalidAnnotation, fmt.Sprintf("annotation %s is %q, which selects none of the namespaces that want copies%s; existing copies are left as they are; to delete them all, remove the label %s",
		NamespacesAnnotation, text, hint, SharedLabel)}
	return &held
}

// namesIn returns the words of a selector that has only names of labels, such as somebody writes who means names of namespaces.
func namesIn(text string) string {
	selector, err := labels.Parse(text)
	if err != nil {
		return ""
	}
	var names []string
	requirements, _ := selector.Requirements()
	for _, requirement := range requirements {
		if requirement.Operator() != selection.Exists || strings.Contains(requirement.Key(), "/") {
			return ""
		}
		names = append(names, requirement.Key())
	}
	return strings.Join(names, ", ")
}

// isSelective reports whether a source asks for some namespaces only.
func (s *Source) isSelective() bool { return s.Problem == nil && !s.Selector.Empty() }

// targets knows of each selective source whether there is a namespace that it selects.
type targets struct {
	mu    sync.Mutex
	known map[string]target // by the name of the source
}

type target struct {
	source *Source // the version that this is about
	some   bool
}

// located returns a source, with the problem that it selects nothing if that is so.
func (c *Controller) located(source *Source) *Source {
	if !source.isSelective() || c.selectsSome(source) {
		return source
	}
	return source.nowhere()
}

// selectsSome reports whether there is a namespace that gets copies of a source.
func (c *Controller) selectsSome(source *Source) bool {
	c.targets.mu.Lock()
	defer c.targets.mu.Unlock()
	if known, ok := c.targets.known[source.Name]; ok && known.source == source {
		return known.some
	}
	some := c.search(source)
	c.targets.known[source.Name] = target{source, some}
	return some
}

func (c *Controller) search(source *Source) bool {
	for _, object := range c.namespaces.GetStore().List() {
		if c.wants(source, object.(*metav1.PartialObjectMetadata)) {
			return true
		}
	}
	return false
}

// wants reports whether a namespace gets copies of a source, if that can be copied at all.
func (s Scope) wants(source *Source, namespace *metav1.PartialObjectMetadata) bool {
	return (Input{Scope: s, Namespace: namespace}).wants(source)
}

// retarget is called when a namespace has changed: old is nil if it was created, now if it was deleted, and both if nobody knows
// what it was. It adds the copies of the sources that selected nothing and now do, or the other way round.
func (c *Controller) retarget(old, now *metav1.PartialObjectMetadata) {
	var changed []*Source
	c.targets.mu.Lock()
	for name, known := range c.targets.known {
		after := now != nil && c.wants(known.source, now)
		before := old == nil && now == nil || old != nil && c.wants(known.source, old)
		if before == after || after == known.some {
			continue
		}
		if some := after || c.search(known.source); some != known.some {
			c.targets.known[name] = target{known.source, some}
			changed = append(changed, known.source)
		}
	}
	c.targets.mu.Unlock()
	for _, source := range changed {
		object, exists, _ := c.sources.GetStore().GetByKey(cache.NewObjectName(c.SourceNamespace, source.Name).String())
		if exists {
			secret := object.(*corev1.Secret)
			if secret.ResourceVersion == source.secret.ResourceVersion { // or its problem, if it has one by now, is another
				c.outcomes.forget(source.Name) // it is news again
			}
			c.enqueueSource(source.Name, secret)
		}
	}
}

// forget removes a source that no longer exists.
func (t *targets) forget(source string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, source)
}

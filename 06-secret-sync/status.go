package secretsync

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// Planned is the decision about one copy.
type Planned struct {
	Key cache.ObjectName
	Decision
}

// Plan reads what the controller reads, once, and returns the decision about each copy that exists or should, by namespace and
// name. It writes nothing. It reads the data of the sources, and of all other Secrets only the metadata: of the copies, and of
// the Secrets that have the name of a copy.
func Plan(ctx context.Context, client kubernetes.Interface, metadataClient metadata.Interface, scope Scope) ([]Planned, []*Source, error) {
	secrets, err := client.CoreV1().Secrets(scope.SourceNamespace).List(ctx, metav1.ListOptions{LabelSelector: SharedLabel + "=true"})
	if err != nil {
		return nil, nil, fmt.Errorf("list the shared Secrets of namespace %s: %w", scope.SourceNamespace, err)
	}
	namespaces, err := metadataClient.Resource(namespacesResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list the namespaces: %w", err)
	}
	copies, err := metadataClient.Resource(secretsResource).List(ctx, metav1.ListOptions{LabelSelector: CopyLabel + "=" + scope.SourceNamespace})
	if err != nil {
		return nil, nil, fmt.Errorf("list the copies: %w", err)
	}
	var sources []*Source
	inputs := map[cache.ObjectName]*Input{}
	at := func(namespace, name string) *Input {
		key := cache.NewObjectName(namespace, name)
		if inputs[key] == nil {
			inputs[key] = &Input{Scope: scope, Key: key}
		}
		return inputs[key]
	}
	for i := range copies.Items {
		at(copies.Items[i].Namespace, copies.Items[i].Name).Copy = &copies.Items[i]
	}
	for i := range secrets.Items {
		if secrets.Items[i].DeletionTimestamp == nil {
			sources = append(sources, ParseSource(&secrets.Items[i]))
		}
	}
	for i, source := range sources {
		wanted := func(namespace metav1.PartialObjectMetadata) bool { return scope.wants(source, &namespace) }
		if source.isSelective() && !slices.ContainsFunc(namespaces.Items, wanted) {
			sources[i] = source.nowhere()
		}
	}
	byName := map[string]*metav1.PartialObjectMetadata{}
	named := map[string]bool{}
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		byName[namespace.Name] = namespace
		for _, source := range sources {
			if (Input{Scope: scope, Namespace: namespace}).wants(source) {
				if in := at(namespace.Name, source.CopyName); in.Copy == nil {
					named[source.CopyName] = true
				}
			}
		}
	}
	for name := range named {
		options := metav1.ListOptions{}
		scope.selectNamesakes(&options, name)
		namesakes, err := metadataClient.Resource(secretsResource).List(ctx, options)
		if err != nil {
			return nil, nil, fmt.Errorf("list the Secrets with the name %s: %w", name, err)
		}
		for i := range namesakes.Items {
			if in := inputs[cache.MetaObjectToName(&namesakes.Items[i])]; in != nil && in.Copy == nil {
				in.Copy = &namesakes.Items[i]
			}
		}
	}
	var plan []Planned
	for key, in := range inputs {
		in.Namespace, in.Sources = byName[key.Namespace], sources
		plan = append(plan, Planned{key, Decide(*in)})
	}
	slices.SortFunc(plan, func(a, b Planned) int {
		return cmp.Or(strings.Compare(a.Key.Namespace, b.Key.Namespace), strings.Compare(a.Key.Name, b.Key.Name))
	})
	slices.SortFunc(sources, func(a, b *Source) int { return strings.Compare(a.Name, b.Name) })
	return plan, sources, nil
}

// Status says how far one source has been copied.
type Status struct {
	Source   string `json:"source"`
	CopyName string `json:"copyName"`
	Wanted   int    `json:"wanted"`  // number of namespaces that should have a copy
	Current  int    `json:"current"` // number of those whose copy is equal to the source
	// Refused has an entry for each namespace that cannot have the copy, by name.
	Refused []RefusedCopy `json:"refused,omitempty"`
}

// RefusedCopy says why a namespace cannot have a copy.
type RefusedCopy struct {
	Namespace string `json:"namespace"`
	Reason    Reason `json:"reason"`
	Message   string `json:"message"`
}

// Summarize returns the status of each source, in their order.
func Summarize(plan []Planned, sources []*Source) []Status {
	statuses := make([]Status, len(sources))
	index := map[string]*Status{}
	for i, source := range sources {
		statuses[i] = Status{Source: source.Name, CopyName: source.CopyName}
		index[source.Name] = &statuses[i]
	}
	for _, planned := range plan {
		refused := map[string]bool{}
		for _, refusal := range planned.Refusals {
			status := index[refusal.Source.Name]
			status.Wanted++
			status.Refused = append(status.Refused, RefusedCopy{planned.Key.Namespace, refusal.Reason, refusal.Message})
			refused[refusal.Source.Name] = true
		}
		if source := planned.Source; source != nil && !refused[source.Name] {
			index[source.Name].Wanted++
			if planned.Action == None {
				index[source.Name].Current++
			}
		}
	}
	return statuses
}

// SourceNamespaceExists reports whether the source namespace exists. The controller runs without it, and copies nothing.
func SourceNamespaceExists(ctx context.Context, client kubernetes.Interface, scope Scope) (bool, error) {
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, scope.SourceNamespace).String(),
	})
	if err != nil {
		return false, fmt.Errorf("look up namespace %s: %w", scope.SourceNamespace, err)
	}
	return slices.ContainsFunc(list.Items, func(n corev1.Namespace) bool { return n.Name == scope.SourceNamespace }), nil
}

package draft

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture"
)

// target is one object, as a scenario names it.
type target struct {
	resource  string // plural and group, as in [torture.Scenario]
	namespace string // "" for the run's, or for none
	name      string
}

// targetOf returns the target that an object is. home is the namespace of the run.
func targetOf(resource string, object oracle.Object, home string) target {
	of := unstructured.Unstructured{Object: object}
	t := target{resource, of.GetNamespace(), of.GetName()}
	if t.namespace == home {
		t.namespace = ""
	}
	return t
}

func (t target) plural() string {
	plural, _, _ := strings.Cut(t.resource, ".")
	return plural
}

// String names the object in a sentence: "deployments.apps web".
func (t target) String() string {
	if t.namespace != "" {
		return t.resource + " " + t.namespace + "/" + t.name
	}
	return t.resource + " " + t.name
}

func (t target) reference() torture.Reference {
	return torture.Reference{Resource: t.resource, Namespace: t.namespace, Name: t.name}
}

// in returns the object in a state, or nil.
func (t target) in(state oracle.State, home string) oracle.Object {
	for _, object := range state[t.plural()] {
		if targetOf(t.resource, object, home) == t {
			return object
		}
	}
	return nil
}

// selects returns a CEL expression that holds for this object only.
func (t target) selects(variable string) string {
	text := variable + ".metadata.name == " + literal(t.name)
	if t.namespace != "" {
		text += " && " + variable + ".metadata.namespace == " + literal(t.namespace)
	}
	return text
}

// variable is the name of an object in rules. The names of items of its lists are the letters that follow.
const variable = "o"

// exists returns a CEL expression that holds if the object exists, is not being deleted, and all conditions hold.
func (t target) exists(conditions ...string) string {
	text := fmt.Sprintf("%s.exists(%s, %s && !has(%[2]s.metadata.deletionTimestamp)", t.plural(), variable, t.selects(variable))
	for _, c := range conditions {
		text += " && " + c
	}
	return text + ")"
}

// ifExists returns a CEL expression that holds if the object does not exist, or all conditions hold.
func (t target) ifExists(conditions ...string) string {
	return fmt.Sprintf("%s.all(%s, !(%s) || %s)", t.plural(), variable, t.selects(variable), strings.Join(conditions, " && "))
}

// isGenerated reports whether the name of an object is made up by chance, so that it is another one in each run.
func isGenerated(object oracle.Object) bool {
	of := unstructured.Unstructured{Object: object}
	return of.GetGenerateName() != "" || suffix.MatchString(of.GetName())
}

// suffix matches names that end as Kubernetes makes them up: without vowels, and without digits that look like letters.
var suffix = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5,10}$`)

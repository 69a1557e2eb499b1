package oracle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// Condition is a condition on a state, in CEL: https://kubernetes.io/docs/reference/using-api/cel/.
//
// It sees the objects of each watched resource as a list by its plural ("pods"); now, a timestamp; and, in
// an invariant, change: its type ("ADDED", "MODIFIED", "DELETED"), resource, object, and old, which for
// ADDED is an empty object.
type Condition struct {
	Rule string `json:"rule"` // is true when all is well
	// Message, CEL too, says what is wrong. Without it, the rule is shown.
	Message string `json:"message,omitempty"`
}

// Rules are conditions that have been understood.
type Rules struct {
	resources []string
	rules     []rule
}

type rule struct {
	Condition
	holds, message cel.Program // message may be nil
}

// NewRules reads conditions on these resources. An error says which of them it is about.
func NewRules(resources []string, conditions []Condition) (*Rules, error) {
	options := []cel.EnvOption{
		cel.Variable("now", cel.TimestampType),
		cel.Variable("change", cel.DynType),
		cel.OptionalTypes(), library.Lists(), library.Regex(), library.URLs(),
	}
	for _, resource := range resources {
		options = append(options, cel.Variable(resource, cel.ListType(cel.DynType)))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("resources %s: %w", strings.Join(resources, ", "), err)
	}
	r := &Rules{resources: resources}
	for _, c := range conditions {
		compiled := rule{Condition: c}
		if compiled.holds, err = compile(env, c.Rule, cel.BoolType); err != nil {
			return nil, fmt.Errorf("rule %q: %w", c.Rule, err)
		}
		if c.Message != "" {
			if compiled.message, err = compile(env, c.Message, cel.StringType); err != nil {
				return nil, fmt.Errorf("message %q: %w", c.Message, err)
			}
		}
		r.rules = append(r.rules, compiled)
	}
	return r, nil
}

func compile(env *cel.Env, text string, want *cel.Type) (cel.Program, error) {
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if is := ast.OutputType(); !is.IsExactType(want) && !is.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it is a %s, and must be a %s", is, want)
	}
	return env.Program(ast)
}

// Broken says what is wrong with a state, or "". change is the one that led to it, or nil. Rules that cannot
// be evaluated, as where there is no such object yet, are broken.
func (r *Rules) Broken(state State, change *Change) string {
	if len(r.rules) == 0 {
		return ""
	}
	values := map[string]any{"now": time.Now(), "change": map[string]any{}}
	for _, resource := range r.resources {
		values[resource] = state.List(resource)
	}
	if change != nil {
		old := change.Old
		if old == nil {
			old = Object{}
		}
		values["now"] = change.Time
		values["change"] = map[string]any{
			"type": string(change.Type), "resource": change.Resource, "object": change.New, "old": old,
		}
	}
	for _, rule := range r.rules {
		holds, _, err := rule.holds.Eval(values)
		if err == nil && holds.Value() == true {
			continue
		}
		if rule.message != nil {
			if text, _, messageErr := rule.message.Eval(values); messageErr == nil && text.Value() != "" {
				return fmt.Sprint(text.Value())
			}
		}
		if err != nil {
			return fmt.Sprintf("it cannot be said whether %s: %v", rule.Rule, err)
		}
		return "it does not hold that " + rule.Rule
	}
	return ""
}

// errBroken ends a walk through the states.
var errBroken = errors.New("broken")

// BrokenEver says what was wrong with the first state that broke a rule, or "".
func (r *Rules) BrokenEver(s *States) (what string, change Change) {
	_ = s.Each(func(state State, c Change) error {
		what, change = r.Broken(state, &c), c
		if what != "" {
			return errBroken
		}
		return nil
	})
	return what, change
}

// sorted returns the keys of a map, in order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

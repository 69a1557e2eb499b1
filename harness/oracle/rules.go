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
	"github.com/google/cel-go/ext"
	"k8s.io/apiserver/pkg/cel/library"
)

// Condition is a condition on a state, in CEL: https://kubernetes.io/docs/reference/using-api/cel/.
//
// Its variables are a list of objects for each watched resource, by plural ("pods"); now, a timestamp; and, in an
// invariant, change, with the fields type ("ADDED", "MODIFIED" or "DELETED"), resource, object, and old, which is an empty
// object for ADDED. The functions are those of Kubernetes' own rules, without its authorizer. A rule that names change is not checked in the first state after a gap, see [Change.Relisted].
type Condition struct {
	Rule string `json:"rule"` // an expression that is true while the condition holds
	// Message is an expression of type string that says what is wrong. Without it, the rule is shown.
	Message string `json:"message,omitempty"`
}

// Rules are compiled conditions.
type Rules struct {
	resources []string
	rules     []rule
}

type rule struct {
	Condition
	holds, message cel.Program // message may be nil
	namesChange    bool        // the rule does
	names          []string    // the resources that the rule names
}

// NewRules compiles conditions on these resources. Its error names the condition that is malformed.
func NewRules(resources []string, conditions []Condition) (*Rules, error) {
	conditions = slices.Clone(conditions)
	for i := range conditions { // a block of YAML ends in a line break
		conditions[i].Rule, conditions[i].Message = strings.TrimSpace(conditions[i].Rule), strings.TrimSpace(conditions[i].Message)
	}
	options := []cel.EnvOption{
		cel.Variable("now", cel.TimestampType),
		cel.Variable("change", cel.DynType),
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), library.Lists(), library.Regex(), library.URLs(), library.Quantity(),
		library.IP(), library.CIDR(), library.Format(), library.SemverLib(), ext.Strings(ext.StringsVersion(2)), ext.Sets(), ext.TwoVarComprehensions(),
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
		var named []string
		if compiled.holds, named, err = compile(env, c.Rule, cel.BoolType); err != nil {
			return nil, fmt.Errorf("rule %q: %w", c.Rule, err)
		}
		compiled.namesChange = slices.Contains(named, "change")
		compiled.names = slices.DeleteFunc(named, func(name string) bool { return !slices.Contains(resources, name) })
		if c.Message != "" {
			if compiled.message, _, err = compile(env, c.Message, cel.StringType); err != nil {
				return nil, fmt.Errorf("message %q: %w", c.Message, err)
			}
		}
		r.rules = append(r.rules, compiled)
	}
	return r, nil
}

// compile compiles an expression, and returns the names in it, sorted.
func compile(env *cel.Env, text string, want *cel.Type) (program cel.Program, names []string, err error) {
	checked, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, nil, err
	}
	if is := checked.OutputType(); !is.IsExactType(want) && !is.IsExactType(cel.DynType) {
		return nil, nil, fmt.Errorf("it has type %s, but must have type %s", is, want)
	}
	for _, reference := range checked.NativeRep().ReferenceMap() {
		if reference.Name != "" && !slices.Contains(names, reference.Name) {
			names = append(names, reference.Name)
		}
	}
	slices.Sort(names)
	program, err = env.Program(checked)
	return program, names, err
}

// Violation is a rule that does not hold in a state.
type Violation struct {
	Rule    string // its CEL source; identifies the rule
	Message string // what is wrong, for a person
}

// Check returns the first rule that does not hold in a state, or nil. change is the one that led to the state, or nil. A
// rule that cannot be evaluated, for example because an object does not exist yet, does not hold.
func (r *Rules) Check(state State, change *Change) *Violation {
	if len(r.rules) == 0 {
		return nil
	}
	values := r.values(state, change)
	for _, rule := range r.rules {
		if v := rule.check(values, change); v != nil {
			return v
		}
	}
	return nil
}

// CheckEach is like Check, of each rule: nil for one that holds.
func (r *Rules) CheckEach(state State, change *Change) (violations []*Violation) {
	values := r.values(state, change)
	for _, rule := range r.rules {
		violations = append(violations, rule.check(values, change))
	}
	return violations
}

// values returns the variables of the rules.
func (r *Rules) values(state State, change *Change) map[string]any {
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
	return values
}

// check returns how the rule does not hold, or nil.
func (rule rule) check(values map[string]any, change *Change) *Violation {
	if rule.namesChange && change != nil && change.Relisted {
		return nil
	}
	holds, _, err := rule.holds.Eval(values)
	if err == nil && holds.Value() == true {
		return nil
	}
	if rule.message != nil {
		if text, _, messageErr := rule.message.Eval(values); messageErr == nil && text.Value() != "" {
			message := fmt.Sprint(text.Value())
			if err != nil { // by a mistake in the rule, perhaps
				message += fmt.Sprintf(" (the rule cannot be evaluated: %v)", err)
			}
			return &Violation{rule.Rule, message}
		}
	}
	if err != nil {
		return &Violation{rule.Rule, fmt.Sprintf("the rule %s cannot be evaluated: %v", rule.Rule, err)}
	}
	return &Violation{rule.Rule, "the rule does not hold: " + rule.Rule}
}

// Sources returns the rules as they are written, without the spaces around them.
func (r *Rules) Sources() (sources []string) {
	for _, rule := range r.rules {
		sources = append(sources, rule.Rule)
	}
	return sources
}

// Named returns the resources that each rule names.
func (r *Rules) Named() (names [][]string) {
	for _, rule := range r.rules {
		names = append(names, rule.names)
	}
	return names
}

// errViolated ends a walk through the states.
var errViolated = errors.New("violated")

// CheckAll checks the rules in every state that [States.Each] visits, and returns the first violation with the change that led to it, or nil.
func (r *Rules) CheckAll(s *States) (violation *Violation, change Change) {
	_ = s.Each(func(state State, c Change) error {
		violation, change = r.Check(state, &c), c
		if violation != nil {
			return errViolated
		}
		return nil
	})
	return violation, change
}

// sorted returns the keys of a map, in order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

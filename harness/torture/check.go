package torture

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture/plan"
)

// Check is what a single run without faults shows about a scenario.
type Check struct {
	Outcome Outcome
	Objects []ObjectsSeen // of each resource
	Rules   []RuleSeen
	// Kinds is how many plans there are of each kind of fault; nil if the run failed. A kind with 0 cannot come in this scenario.
	Kinds map[string]int
}

// ObjectsSeen is what rules could see of a resource.
type ObjectsSeen struct {
	Resource    string
	Least, Most int      // how many objects there were at a time
	Names       []string // in the last state
}

// RuleSeen is what a rule came to in the states that it is for.
type RuleSeen struct {
	Part         string // of the scenario: "ready", "converged", "invariants", or a step
	Rule         string
	States, Held int
	First, Last  *Sighting // when it did not hold; nil if it always did
	Unseen       []string  // the resources that it names, and of which there was never an object
}

// Sighting is a state in which a rule did not hold.
type Sighting struct {
	Step    string // such as: in the step "x"
	Message string
	After   time.Duration // since the programs were started; 0 before
}

// Check runs the scenario once, without faults, and says what its rules saw. The error is one that ends everything; that the controller
// fails is part of what is returned.
func (l *Lab) Check(ctx context.Context, o Options) (*Check, error) {
	o.Progress = inTurn(o.Progress)
	s, err := l.prepare(ctx, o, o.Commands)
	if err != nil {
		return nil, err
	}
	got, err := s.execute(ctx, nil, job{{Plan: NoFault}})
	if err != nil {
		return nil, err
	}
	c := &Check{Outcome: got.Outcome}
	if got.run == nil || got.run.states == nil { // it did not get so far
		return c, nil
	}
	c.look(got.run)
	if got.Verdict == Passed {
		b := &Baseline{}
		b.add(got.Outcome, got.seen)
		c.Kinds = map[string]int{}
		for _, kind := range plan.Kinds() {
			c.Kinds[kind] = 0
		}
		for _, p := range o.possible(b) {
			c.Kinds[p.Kind]++
		}
	}
	return c, nil
}

// look checks the rules in each state.
func (c *Check) look(r *run) {
	type part struct {
		name  string
		rules *oracle.Rules
		is    func(time.Time) bool // whether the rules are for states of this time
		at    int                  // of its first rule in c.Rules
	}
	isLaunched := func(at time.Time) bool { return !r.launched.IsZero() && !at.Before(r.launched) }
	parts := []part{
		{"ready", r.rules.ready, func(at time.Time) bool { return !isLaunched(at) }, 0},
		{"converged", r.rules.converged, isLaunched, 0},
		{"invariants", r.rules.invariants, func(time.Time) bool { return true }, 0},
	}
	for i := range r.scenario.Steps {
		parts = append(parts, part{"when of " + r.stepName(i+1), r.rules.when[i], func(at time.Time) bool {
			return len(r.stepStarts) > i && !at.Before(r.stepStarts[i]) && (len(r.stepStarts) <= i+1 || at.Before(r.stepStarts[i+1]))
		}, 0})
	}
	state, _ := r.states.Now()
	for _, name := range r.scenario.plurals() {
		c.Objects = append(c.Objects, ObjectsSeen{Resource: name, Least: len(state[name]), Most: len(state[name]), Names: slices.Sorted(maps.Keys(state[name]))})
	}
	for i, p := range parts {
		parts[i].at = len(c.Rules)
		for _, rule := range p.rules.Sources() {
			c.Rules = append(c.Rules, RuleSeen{Part: p.name, Rule: rule})
		}
	}
	_ = r.states.Each(func(state oracle.State, change oracle.Change) error {
		for i, seen := range c.Objects {
			n := len(state[seen.Resource])
			c.Objects[i].Least, c.Objects[i].Most = min(seen.Least, n), max(seen.Most, n)
		}
		for _, p := range parts {
			if !p.is(change.Time) {
				continue
			}
			for i, violation := range p.rules.CheckEach(state, &change) {
				rule := &c.Rules[p.at+i]
				rule.States++
				if violation == nil {
					rule.Held++
					continue
				}
				message := violation.Message
				if strings.HasSuffix(message, ": "+violation.Rule) {
					message = "" // it only repeats the rule
				}
				rule.Last = &Sighting{r.during(change.Time), message, 0}
				if isLaunched(change.Time) {
					rule.Last.After = change.Time.Sub(r.launched)
				}
				if rule.First == nil {
					rule.First = rule.Last
				}
			}
		}
		return nil
	})
	most := map[string]int{}
	for _, seen := range c.Objects {
		most[seen.Resource] = seen.Most
	}
	for _, p := range parts {
		for i, names := range p.rules.Named() {
			for _, name := range names {
				if n, known := most[name]; known && n == 0 {
					c.Rules[p.at+i].Unseen = append(c.Rules[p.at+i].Unseen, name)
				}
			}
		}
	}
}

// Waits reports whether a rule of converged did not hold at some time, so that the scenario waits for the controller.
func (c *Check) Waits() bool {
	return slices.ContainsFunc(c.Rules, func(r RuleSeen) bool { return r.Part == "converged" && r.First != nil })
}

// WriteText prints the check for a person.
func (c *Check) WriteText(w io.Writer) error {
	var text strings.Builder
	if c.Outcome.Verdict == Passed {
		fmt.Fprintf(&text, "A run without faults passed, in %s.\n", c.Outcome.Duration.Round(100*time.Millisecond))
	} else {
		fmt.Fprintf(&text, "A run without faults failed: %s: %s\n%s\n%s\n", c.Outcome.Verdict, c.Outcome.Message, lastRequests(c.Outcome), tail(c.Outcome.Log))
	}
	if len(c.Objects) > 0 {
		text.WriteString("\nObjects that rules can see:\n")
	}
	for _, o := range c.Objects {
		const shown = 4
		names := o.Names[:min(shown, len(o.Names))]
		more := ""
		if len(o.Names) > shown {
			more = fmt.Sprintf(" and %d more", len(o.Names)-shown)
		}
		fmt.Fprintf(&text, "  %s: %d to %d at a time; in the end: %s%s\n", o.Resource, o.Least, o.Most, orNone(strings.Join(names, ", ")), more)
		if o.Resource == "configmaps" {
			text.WriteString("    kube-root-ca.crt, which is in every namespace, is hidden from them\n")
		}
	}
	part := ""
	for _, r := range c.Rules {
		if r.Part != part {
			part = r.Part
			fmt.Fprintf(&text, "\n%s:\n", part)
		}
		fmt.Fprintf(&text, "- %s\n", strings.Join(strings.Fields(r.Rule), " "))
		switch {
		case r.States == 0:
			text.WriteString("  no object changed while it was waited for\n")
		case r.First == nil:
			fmt.Fprintf(&text, "  held in each of %d states\n", r.States)
		default:
			fmt.Fprintf(&text, "  held in %d of %d states; did not hold %s\n", r.Held, r.States, r.First)
			if r.Last.String() != r.First.String() {
				fmt.Fprintf(&text, "  and last %s\n", r.Last)
			}
		}
		if len(r.Unseen) > 0 {
			fmt.Fprintf(&text, "  there was never an object of %s, so it says nothing about them\n", strings.Join(r.Unseen, ", "))
		}
	}
	if c.Outcome.Verdict == Passed && !c.Waits() {
		text.WriteString("\nEach rule of converged held all the time, so the scenario does not wait for the controller: its next step comes\nas soon as nothing passes between the controller and the API server. A change that is lost shows only in the end.\n")
	}
	if c.Kinds != nil {
		plans := 0
		var none []string
		for _, kind := range slices.Sorted(maps.Keys(c.Kinds)) {
			plans += c.Kinds[kind]
			if c.Kinds[kind] == 0 {
				none = append(none, kind)
			}
		}
		fmt.Fprintf(&text, "\nThere are %d plans. Kinds of fault that cannot come in this scenario: %s.\n", plans, orNone(strings.Join(none, "; ")))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// String says when and how a rule did not hold.
func (s *Sighting) String() string {
	when := s.Step
	if s.After > 0 {
		when = fmt.Sprintf("%.1fs after the controller was started, %s", s.After.Seconds(), s.Step)
	}
	if s.Message == "" {
		return when
	}
	return when + ": " + strings.Join(strings.Fields(s.Message), " ")
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

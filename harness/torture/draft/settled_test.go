package draft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/oracle"
)

func stateOf(t *testing.T, plural string, texts ...string) oracle.State {
	s := oracle.State{plural: {}}
	for _, text := range texts {
		o := object(t, text)
		name, _ := get(o, fieldPath{"metadata", "name"})
		s[plural][name.(string)] = o
	}
	return s
}

// Health is what held for all objects in all states, and no more.
func TestHealth(t *testing.T) {
	const ready = `{metadata: {name: a, generation: 2}, status: {observedGeneration: 2, phase: Up, conditions: [{type: Ready, status: "True"}, {type: Stalled, status: "False"}]}}`
	for name, c := range map[string]struct {
		objects []string
		want    []string
	}{
		"none":                  {nil, nil},
		"all that is well":      {[]string{ready}, []string{`foos.all(o, !has(o.metadata.deletionTimestamp) && o.?status.?observedGeneration.orValue(0) == o.metadata.generation && o.?status.?phase.orValue(null) == "Up" && o.?status.?conditions.orValue([]).exists(p, p.?type.orValue(null) == "Ready" && p.?status.orValue(null) == "True") && o.?status.?conditions.orValue([]).exists(p, p.?type.orValue(null) == "Stalled" && p.?status.orValue(null) == "False"))`}},
		"one without a status":  {[]string{ready, `{metadata: {name: b, generation: 1}}`}, []string{"foos.all(o, !has(o.metadata.deletionTimestamp))"}},
		"one behind":            {[]string{`{metadata: {name: b, generation: 2}, status: {observedGeneration: 1}}`}, []string{"foos.all(o, !has(o.metadata.deletionTimestamp))"}},
		"one that is deleted":   {[]string{`{metadata: {name: b, deletionTimestamp: "2026-01-01T00:00:00Z"}}`}, nil},
		"an unknown condition":  {[]string{`{metadata: {name: b}, status: {conditions: [{type: Ready, status: Unknown}]}}`}, []string{"foos.all(o, !has(o.metadata.deletionTimestamp))"}},
		"different conditions":  {[]string{ready, `{metadata: {name: b, generation: 1}, status: {observedGeneration: 1, phase: Down, conditions: [{type: Ready, status: "False"}]}}`}, []string{"foos.all(o, !has(o.metadata.deletionTimestamp) && o.?status.?observedGeneration.orValue(0) == o.metadata.generation)"}},
		"nothing that is known": {[]string{`{metadata: {name: b}}`}, []string{"foos.all(o, !has(o.metadata.deletionTimestamp))"}},
	} {
		t.Run(name, func(t *testing.T) {
			var rules []string
			for _, c := range health("foos.example.com", []oracle.State{stateOf(t, "foos", c.objects...), stateOf(t, "foos")}) {
				rules = append(rules, c.rule)
			}
			require.Equal(t, c.want, rules)
			for _, rule := range rules {
				compiled, err := oracle.NewRules([]string{"foos"}, []oracle.Condition{{Rule: rule}})
				require.NoError(t, err)
				require.Nil(t, compiled.Check(stateOf(t, "foos", c.objects...), nil))
			}
		})
	}
}

// The condition Ready of a Pod includes its others. Those of other resources are all of a kind.
func TestHealthOfPods(t *testing.T) {
	const both = `{metadata: {name: a}, status: {conditions: [{type: ContainersReady, status: "True"}, {type: Ready, status: "True"}]}}`
	pods, foos := health("pods", []oracle.State{stateOf(t, "pods", both)}), health("foos", []oracle.State{stateOf(t, "foos", both)})
	require.NotContains(t, pods[0].rule, "ContainersReady")
	require.Contains(t, pods[0].rule, `"Ready"`)
	require.Contains(t, foos[0].rule, "ContainersReady")
}

// What always held is a rule; what followed what others wanted is one with a condition; what was another thing for the same wish is none.
func TestOutcomes(t *testing.T) {
	child := target{resource: "foos", name: "child"}
	is := func(field string, value any) output {
		return output{value, child, rule(variable, fieldPath{field}, value), field == "minor"}
	}
	history := []settled{
		{after: "the start", state: oracle.State{}, inputs: []string{"none"}},
		{after: "one", state: stateOf(t, "foos", "{metadata: {name: child}}"), inputs: []string{"one"}},
		{after: "two", state: stateOf(t, "foos", "{metadata: {name: child}}"), inputs: []string{"two"}},
		{after: "one again", state: stateOf(t, "foos", "{metadata: {name: child}}"), inputs: []string{"one"}},
	}
	made := []outputs{
		{"child": {value: false, of: child}, "size": {value: 7, holds: "size(bars) == 7"}},
		{"child": {value: true, of: child}, "size": {value: 7, holds: "size(bars) == 7"}, "n": is("n", int64(1)), "kind": is("kind", "x"), "minor": is("minor", "x"), "chance": is("chance", int64(5))},
		{"child": {value: true, of: child}, "size": {value: 7, holds: "size(bars) == 7"}, "n": is("n", int64(2)), "kind": is("kind", "x"), "minor": is("minor", "x"), "chance": is("chance", int64(6))},
		{"child": {value: true, of: child}, "size": {value: 7, holds: "size(bars) == 7"}, "n": is("n", int64(1)), "kind": is("kind", "x"), "minor": is("minor", "x"), "chance": is("chance", int64(7))},
	}
	always, whenever, unsure := outcomes(history, made)
	require.Equal(t, []condition{
		{rule: `foos.all(o, !(o.metadata.name == "child") || o.?kind.orValue(null) == "x")`},
		{rule: "size(bars) == 7"},
	}, always)
	require.Equal(t, []string{"chance"}, unsure)
	const exists = `foos.exists(o, o.metadata.name == "child" && !has(o.metadata.deletionTimestamp)`
	require.Equal(t, []condition{
		{"none ?\n    !" + exists + ") : true", `"it is not as it was after this: the start"`},
		{"one ?\n    " + exists + " && o.?n.orValue(null) == 1) : true", `"it is not as it was after this: one"`},
		{"two ?\n    " + exists + " && o.?n.orValue(null) == 2) : true", `"it is not as it was after this: two"`},
	}, whenever)
}

// Names that end as Kubernetes makes them up are another one in each run. Words are not.
func TestIsGenerated(t *testing.T) {
	for text, want := range map[string]bool{
		"{metadata: {name: web}}":                             false,
		"{metadata: {name: my-nginx}}":                        false,
		"{metadata: {name: frontend-config}}":                 false,
		"{metadata: {name: web-1a3b0}}":                       false,
		"{metadata: {name: aider-warmpool-m4x2b}}":            true,
		"{metadata: {name: frontend-6d7c74f4c5-2nbbx}}":       true,
		"{metadata: {name: whatever, generateName: whatev-}}": true,
	} {
		require.Equal(t, want, isGenerated(object(t, text)), text)
	}
}

// The garbage collector needs time for owners of a new kind, not for those of Kubernetes' own.
func TestHasDefinedOwner(t *testing.T) {
	for owner, want := range map[string]bool{
		"apps/v1": false, "v1": false, "batch/v1": false, "example.com/v1": true, "agents.x-k8s.io/v1beta1": true,
	} {
		o := `{metadata: {name: a, ownerReferences: [{apiVersion: ` + owner + `, kind: X, name: x, uid: u}]}}`
		require.Equal(t, want, hasDefinedOwner(stateOf(t, "foos", o)), owner)
	}
	require.False(t, hasDefinedOwner(stateOf(t, "foos", "{metadata: {name: a}}")))
	require.Equal(t, time.Minute, (&drafter{hasOwners: true}).patience())
	require.Zero(t, (&drafter{slowest: 7 * time.Second}).patience())
	require.Equal(t, 40*time.Second, (&drafter{slowest: 10 * time.Second}).patience())
}

// Package torturetest puts controllers to torture in tests.
package torturetest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/mutants"
	"example.com/controllers/harness/torture"
)

// Require puts the controller of a scenario to torture with these plans, in which it must do well, and then some
// with bugs in them, which must be found.
func Require(t *testing.T, scenario *torture.Scenario, plans torture.Options, broken []mutants.Mutant) {
	t.Helper()
	command, err := scenario.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	ring, err := torture.Open(t.Context(), 6, os.Stderr)
	require.NoError(t, err)
	defer func() { require.NoError(t, ring.Close()) }()
	plans.Scenario, plans.Command, plans.Parallel, plans.Progress = scenario, command, 6, os.Stderr
	report, err := ring.Run(t.Context(), plans)
	require.NoError(t, err)
	require.NotEmpty(t, report.Outcomes)
	for _, failure := range report.Failures() {
		t.Errorf("the controller as it is: %s: %s: %s (%s)", failure.Plan.Kind, failure.Verdict, failure.Why, failure.Plan)
	}
	results, err := mutants.RunOn(t.Context(), ring, mutants.Options{Scenario: scenario, Mutants: broken, AtOnce: 2, Progress: os.Stderr})
	require.NoError(t, err)
	require.Len(t, results, len(broken))
	for _, r := range results {
		require.True(t, r.Caught(), "%s", r)
	}
}

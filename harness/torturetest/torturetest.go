// Package torturetest puts a lesson's controller to torture in the tests of its exercises, which are in a directory
// with torture/scenario.yaml and mutants.
package torturetest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/mutants"
	"example.com/controllers/harness/torture"
)

// Require puts the controller to torture with these plans, in which it must do well, and then some mutants, by their
// names with commas between them, which must be found. It is left out by "go test -short".
func Require(t *testing.T, plans torture.Options, names string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes more than a minute")
	}
	t.Parallel()
	scenario, err := torture.Read("torture/scenario.yaml")
	require.NoError(t, err)
	broken, err := mutants.Read("mutants", names)
	require.NoError(t, err)
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

// RequireCatalogue reads all mutants, and wants some for each of these verdicts.
func RequireCatalogue(t *testing.T, verdicts ...torture.Verdict) {
	t.Helper()
	catalogue, err := mutants.Read("mutants", "")
	require.NoError(t, err)
	require.Greater(t, len(catalogue), 10)
	seen := map[torture.Verdict]bool{}
	for _, m := range catalogue {
		for _, v := range m.Expect {
			seen[v] = true
		}
	}
	for _, v := range verdicts {
		require.True(t, seen[v], "there is none of which the verdict is %q", v)
	}
}

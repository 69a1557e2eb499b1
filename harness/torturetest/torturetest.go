// Package torturetest puts a lesson's controller to torture in the lesson's tests. They must be in a directory with
// torture/scenario.yaml and mutants.
package torturetest

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/mutants"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/torture"
)

// Require puts the controller to torture with these plans, which it must pass, and some mutants, which must be caught.
// shows holds, for each of these mutants, the fault that shows it; "" for none. "go test -short" skips it.
func Require(t *testing.T, plans torture.Options, shows map[string]string) {
	t.Helper()
	suite.Long(t, "it takes more than a minute")
	t.Parallel()
	scenario, err := torture.Read("torture/scenario.yaml")
	require.NoError(t, err)
	broken, err := mutants.Read("mutants", strings.Join(slices.Sorted(maps.Keys(shows)), ","))
	require.NoError(t, err)
	of := map[string]torture.Plan{}
	for name, text := range shows {
		of[name] = torture.NoFault
		if text != "" {
			fault, err := apiproxy.ParseFault(text)
			require.NoError(t, err)
			of[name] = torture.Plan{Kind: text, Faults: []apiproxy.Fault{fault}}
		}
	}
	commands, err := scenario.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	lab, err := torture.Open(t.Context(), 6, os.Stderr)
	require.NoError(t, err)
	defer func() { require.NoError(t, lab.Close()) }()
	plans.Scenario, plans.Commands, plans.Progress = scenario, commands, os.Stderr
	plans.Baseline, err = lab.Learn(t.Context(), plans)
	require.NoError(t, err)
	var group errgroup.Group
	var results []mutants.Result
	group.Go(func() (err error) {
		results, err = mutants.RunIn(t.Context(), lab, mutants.Options{
			Scenario: scenario, Mutants: broken, Commands: commands, Baseline: plans.Baseline, Plans: of, Progress: os.Stderr,
		})
		return err
	})
	report, err := lab.Run(t.Context(), plans)
	require.NoError(t, errors.Join(err, group.Wait()))
	for _, outcome := range report.NotRun() {
		t.Logf("%s could not be run: %s", outcome.Plan.Kind, outcome.Message)
	}
	require.Greater(t, len(report.Outcomes), 2*len(report.NotRun()), "most plans could not be run")
	for _, failure := range report.Failures() {
		t.Errorf("the controller without bugs: %s: %s: %s (%s)", failure.Plan.Kind, failure.Verdict, failure.Message, failure.Plan)
	}
	require.Len(t, results, len(broken))
	for _, r := range results {
		require.True(t, r.Caught(), "%s", r)
	}
}

// RequireCatalogue reads all mutants, and requires that some expect each of these verdicts.
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
		require.True(t, seen[v], "no mutant expects the verdict %q", v)
	}
}

// RequireShared puts the controller to torture with its most telling plans, which share runs, and which it must pass; and a mutant with as
// many, of which one must find it. "go test -short" skips it.
func RequireShared(t *testing.T, most int, mutant string) {
	t.Helper()
	suite.Long(t, "it takes about a minute")
	t.Parallel()
	scenario, err := torture.Read("torture/scenario.yaml")
	require.NoError(t, err)
	broken, err := mutants.Read("mutants", mutant)
	require.NoError(t, err)
	commands, err := scenario.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	lab, err := torture.Open(t.Context(), 6, os.Stderr)
	require.NoError(t, err)
	defer func() { require.NoError(t, lab.Close()) }()
	o := torture.Options{Scenario: scenario, Commands: commands, Progress: os.Stderr, MaxPlans: most}
	o.Baseline, err = lab.Learn(t.Context(), o)
	require.NoError(t, err)
	report, err := lab.Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, report.Outcomes, most, "each plan has an outcome")
	require.Empty(t, report.Failures())
	require.Less(t, report.Runs, most, "some share a run")
	results, err := mutants.RunIn(t.Context(), lab, mutants.Options{
		Scenario: scenario, Mutants: broken, Commands: commands, Baseline: o.Baseline, Unaided: true, MaxPlans: most, Progress: os.Stderr,
	})
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.True(t, results[0].Caught(), "%s", results[0])
}

package torture_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/torture"
)

// Of a controller that acts on the whole cluster, each run has a control plane of its own.
func TestWholeClusters(t *testing.T) {
	suite.Long(t, "it takes more than a minute")
	t.Parallel() // each has a lab of its own
	scenario, err := torture.Read("internal/inventory/scenario.yaml")
	require.NoError(t, err)
	correct, err := scenario.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	lab, err := torture.Open(t.Context(), 0, os.Stderr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	plan := func(text string) torture.Plan {
		fault, err := apiproxy.ParseFault(text)
		require.NoError(t, err)
		return torture.Plan{Kind: text, Faults: []apiproxy.Fault{fault}}
	}
	options := torture.Options{Scenario: scenario, Commands: correct, Progress: os.Stderr, Plans: []torture.Plan{
		plan("verb=create,resource=configmaps,nth=1,refuse=500"), plan("verb=watch,resource=namespaces,late=2s"),
		plan("verb=delete,resource=configmaps,nth=1,crash=after"),
	}}
	options.Baseline, err = lab.Learn(t.Context(), options)
	require.NoError(t, err)
	require.Contains(t, options.Baseline.Expected.Did, "delete configmaps namespace-kitchen")
	report, err := lab.Run(t.Context(), options)
	require.NoError(t, err)
	require.Len(t, report.Outcomes, 3)
	for _, o := range report.Outcomes {
		require.Equal(t, torture.Passed, o.Verdict, "%s: %s\n%s", o.Plan.Kind, o.Message, o.Log)
		require.False(t, o.NotMet, o.Plan.Kind)
	}

	options.Unconfirmed = true // from here on, each failure is expected

	// The bug shows only when a Namespace is deleted.
	options.Commands = torture.Single(append([]string{"env", "BUG=namespaces-stay"}, correct["controller"]...)...)
	options.Plans = []torture.Plan{torture.NoFault}
	report, err = lab.Run(t.Context(), options)
	require.NoError(t, err)
	failures := report.Groups()
	require.Len(t, failures, 1)
	require.Equal(t, torture.Lost, failures[0].Verdict)
	require.Contains(t, failures[0].Message, "the Namespaces in the inventory are not those of the cluster")
	require.Contains(t, failures[0].Message, "after the Namespace is deleted")

	// A step changes an object that the controller has deleted.
	options.Commands = torture.Single(append([]string{"env", "BUG=deletes-what-it-did-not-create"}, correct["controller"]...)...)
	report, err = lab.Run(t.Context(), options)
	require.NoError(t, err)
	failures = report.Groups()
	require.Len(t, failures, 1)
	require.Equal(t, torture.Different, failures[0].Verdict)
	require.Contains(t, failures[0].Message, "configmaps kitchen/recipe was deleted, and a step of the scenario changes it: ")
}

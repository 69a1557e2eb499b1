package torture

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/suite"
)

// A leader that is frozen in the middle of a write, and thawed when another one leads, overwrites what the other has
// written, unless its writes are fenced. The plan that shows it is one of those that every run has.
func TestFencing(t *testing.T) {
	suite.Long(t, "it takes about two minutes")
	t.Parallel() // each has a lab of its own
	scenario, err := Read("internal/ledger/scenario.yaml")
	require.NoError(t, err)
	fenced, err := scenario.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	lab, err := Open(t.Context(), 0, os.Stderr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	options := Options{Scenario: scenario, Commands: fenced, Progress: os.Stderr}
	options.Baseline, err = lab.Learn(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, options.Baseline.lease)
	options.Plans = slices.DeleteFunc(options.plans(options.Baseline), func(p Plan) bool { return !strings.HasPrefix(p.Kind, "frozen") })
	const found = "--fault verb=update,resource=configmaps,program=ledger,nth=3,freeze=before"
	require.True(t, slices.ContainsFunc(options.Plans, func(p Plan) bool { return p.String() == found }), "%v", options.Plans)

	report, err := lab.Run(t.Context(), options)
	require.NoError(t, err)
	for _, o := range report.Outcomes {
		require.Equal(t, Passed, o.Verdict, "%s: %s\n%s", o.Plan, o.Message, o.Log)
	}

	options.Commands = Commands{"ledger": append([]string{"env", "BUG=no-fencing"}, fenced["ledger"]...)}
	report, err = lab.Run(t.Context(), options)
	require.NoError(t, err)
	failures := report.Failures()
	require.NotEmpty(t, failures)
	for _, o := range failures {
		require.Equal(t, RuleBroken, o.Verdict, "%s: %s\n%s", o.Plan, o.Message, o.Log)
		require.Contains(t, o.Message, "the total went down, from 5 to ")
	}
	require.True(t, slices.ContainsFunc(failures, func(o Outcome) bool { return o.Plan.String() == found }))
}

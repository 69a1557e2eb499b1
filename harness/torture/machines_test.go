package torture_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/torture"
)

// Agents are killed with their machines, and the machines fail at any moment.
func TestMachines(t *testing.T) {
	suite.Long(t, "it takes more than a minute")
	t.Parallel() // each has a lab of its own
	scenario, err := torture.Read("internal/rebooter/scenario.yaml")
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
		plan("program=agent-node-0,verb=patch,nth=1,kill=after"),
		plan("program=agent-node-0,verb=patch,nth=1,power-cut=before"), plan("program=agent-node-0,verb=patch,nth=1,power-cut=after"),
		plan("program=agent-node-0,verb=patch,nth=1,reboot=after"), plan("program=agent-node-0,verb=patch,nth=2,reboot=before"),
		plan("program=agent-node-2,verb=patch,nth=1,crash=after"), plan("program=agent-node-2,verb=patch,nth=1,power-cut=after"),
		plan("program=agent-node-2,verb=patch,nth=1,refuse=409,power-cut=after"), // as if the Node had changed meanwhile
	}}
	options.Baseline, err = lab.Learn(t.Context(), options)
	require.NoError(t, err)
	report, err := lab.Run(t.Context(), options)
	require.NoError(t, err)
	require.Len(t, report.Outcomes, len(options.Plans))
	for _, o := range report.Outcomes {
		if o.Verdict != torture.Passed {
			t.Logf("the requests of %s:", o.Plan.Kind)
			require.NoError(t, o.History.WriteRequests(t.Output()))
		}
		require.Equal(t, torture.Passed, o.Verdict, "%s: %s\n%s", o.Plan.Kind, o.Message, o.Log)
		require.False(t, o.NotMet, o.Plan.Kind)
	}

	options.Unconfirmed = true // the failure is expected
	// The bug shows when the agent is restarted, and the machine is not.
	options.Commands = torture.Commands{"agent": append([]string{"env", "BUG=restart-is-reboot"}, correct["agent"]...)}
	options.Plans = options.Plans[:1]
	report, err = lab.Run(t.Context(), options)
	require.NoError(t, err)
	failures := report.Groups()
	require.Len(t, failures, 1)
	require.Equal(t, torture.Lost, failures[0].Verdict)
	require.Contains(t, failures[0].Message, "a machine has not rebooted that was to")
}

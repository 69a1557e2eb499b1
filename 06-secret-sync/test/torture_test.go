package test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/torture"
	"example.com/controllers/harness/torturetest"
)

// B17: the controller survives that the leader is killed right after it has created a copy. Each run starts a control plane,
// so only the first steps of the scenario are taken; "make torture LESSON=6" takes all of them.
func TestTorture(t *testing.T) {
	suite.Long(t, "it takes more than a minute")
	t.Parallel()
	scenario, err := torture.Read("torture/scenario.yaml")
	require.NoError(t, err)
	scenario.Steps = scenario.Steps[:2]
	commands, err := scenario.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	lab, err := torture.Open(t.Context(), 0, os.Stderr)
	require.NoError(t, err)
	defer func() { require.NoError(t, lab.Close()) }()
	fault, err := apiproxy.ParseFault("program=controller,verb=create,resource=secrets,nth=1,kill=after")
	require.NoError(t, err)
	options := torture.Options{Scenario: scenario, Commands: commands, Progress: os.Stderr, Plans: []torture.Plan{
		{Kind: "killed after the first create", Faults: []apiproxy.Fault{fault}},
	}}
	options.Baseline, err = lab.Learn(t.Context(), options)
	require.NoError(t, err)
	report, err := lab.Run(t.Context(), options)
	require.NoError(t, err)
	require.Empty(t, report.NotRun())
	for _, o := range report.Outcomes {
		require.Equal(t, torture.Passed, o.Verdict, "%s: %s\n%s", o.Plan, o.Message, o.Log)
		require.False(t, o.NotMet, o.Plan.Kind)
	}
}

func TestTheCatalogueCanBeRead(t *testing.T) {
	torturetest.RequireCatalogue(t, torture.NoStop, torture.Lost, torture.RuleBroken, torture.TooMuch, torture.NoRest)
}

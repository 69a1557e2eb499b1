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

// The operator survives that the leader is killed between its two writes of an admission. Each run starts a control plane,
// so only the first step of the scenario is taken; "make torture LESSON=5" takes all steps.
func TestTorture(t *testing.T) {
	suite.Long(t, "it takes more than a minute")
	t.Parallel()
	scenario, err := torture.Read("torture/scenario.yaml")
	require.NoError(t, err)
	scenario.Steps = scenario.Steps[:1]
	commands, err := scenario.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	lab, err := torture.Open(t.Context(), 0, os.Stderr)
	require.NoError(t, err)
	defer func() { require.NoError(t, lab.Close()) }()
	plan := func(text string) torture.Plan {
		fault, err := apiproxy.ParseFault(text)
		require.NoError(t, err)
		return torture.Plan{Kind: text, Faults: []apiproxy.Fault{fault}}
	}
	options := torture.Options{Scenario: scenario, Commands: commands, Progress: os.Stderr, Plans: []torture.Plan{
		plan("program=controller,verb=update,resource=configmaps,nth=1,kill=after"),
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
	torturetest.RequireCatalogue(t, torture.Lost, torture.RuleBroken, torture.TooMuch, torture.NoRest)
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/torture"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// The controller as it is lives through faults that are drawn at random, and of some that are not as it is,
// torture says why.
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a minute")
	}
	t.Parallel()
	ctx := t.Context()
	scenario, err := torture.Read("../torture/scenario.yaml")
	require.NoError(t, err)
	mutants, err := readAll(".", "lost-retry,sigterm-goes-nowhere")
	require.NoError(t, err)
	scratch := t.TempDir()
	reference, err := build(ctx, "../..", scratch, mutant{name: "none"})
	require.NoError(t, err)
	ring, err := torture.Open(ctx, 6, os.Stderr)
	require.NoError(t, err)
	defer func() { require.NoError(t, ring.Close()) }()

	report, err := ring.Run(ctx, torture.Options{Scenario: scenario, Command: command(scenario, reference), Seed: 1, Seeds: 8, Parallel: 6, Progress: os.Stderr})
	require.NoError(t, err)
	require.Len(t, report.Outcomes, 8)
	for _, failure := range report.Failures() {
		t.Errorf("the controller as it is: %s: %s: %s (%s)", failure.Plan.Kind, failure.Verdict, failure.Why, failure.Plan)
	}
	results, err := judgeAll(ctx, 2, mutants, func(ctx context.Context, m mutant) (result, error) {
		program, err := build(ctx, "../..", scratch, m)
		require.NoError(t, err)
		return judge(ctx, ring, scenario, reference, program, m, 0)
	})
	require.NoError(t, err)
	for _, r := range results {
		require.True(t, r.caught(), "%s: %q (%s), expected %q", r.name, r.verdict, r.why, r.expect)
	}
}

func TestTheCatalogueCanBeRead(t *testing.T) {
	mutants, err := readAll(".", "")
	require.NoError(t, err)
	require.Greater(t, len(mutants), 20)
	seen := map[torture.Verdict]bool{}
	for _, m := range mutants {
		for _, v := range m.expect {
			seen[v] = true
		}
	}
	for _, v := range []torture.Verdict{torture.Died, torture.NoStop, torture.Lost, torture.TooMuch, torture.NoRest} {
		require.True(t, seen[v], "there is none of which the verdict is %q", v)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".patch"), []byte(text), 0o600))
	}
	_, err := readAll(dir, "")
	require.ErrorContains(t, err, "there are no mutants in")
	_, err = readAll(dir, "nobody")
	require.ErrorContains(t, err, `there is no mutant "nobody"`)
	for text, want := range map[string]string{
		"":                               "a patch has a head",
		"Bug: x\n\n--- a\n":              `its head must have a line that begins with "Bug:", and one with "Expect:"`,
		"Expect: died\n\n--- a\n":        `its head must have a line that begins with "Bug:"`,
		"Bug: x\nExpect: sad\n\n--- a\n": `there is no verdict "sad"`,
	} {
		write("m", text)
		_, err := readAll(dir, "")
		require.ErrorContains(t, err, want)
	}
	for _, args := range [][]string{{"--at-once", "0"}, {"more"}, {"--nonsense"}} {
		require.Error(t, run(t.Context(), args))
	}
}

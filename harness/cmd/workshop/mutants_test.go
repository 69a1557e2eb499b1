package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/mutants"
)

// Ctrl-C prints what is known of the mutants that were tried.
func TestReportMutants(t *testing.T) {
	tried := []mutants.Result{{Mutant: mutants.Mutant{Name: "lost-retry", Bug: "it forgets"}}}
	broken := errors.New("the control plane does not start")
	for name, c := range map[string]struct {
		results     []mutants.Result
		err         error
		interrupted bool
		want        string // what the command prints of the error
		status      int
		says        []string
	}{
		"all were tried":         {tried, nil, false, "workshop: not caught: lost-retry\n", 1, []string{"MUTANT", "0 of 1 mutants caught"}},
		"interrupted":            {tried, context.Canceled, true, "", 130, []string{"MUTANT", "it forgets", "\ninterrupted: 1 of 3 mutants were tried\n"}},
		"interrupted at once":    {nil, context.Canceled, true, "", 130, []string{"interrupted: 0 of 3 mutants were tried"}},
		"interrupted, and more":  {tried, errors.Join(context.Canceled, broken), true, "workshop: the control plane does not start\n", 130, []string{"interrupted: 1 of 3 mutants were tried"}},
		"ended by an error":      {tried, broken, false, "workshop: the control plane does not start\n", 1, []string{"MUTANT", "it forgets"}},
		"an error at the outset": {nil, broken, false, "workshop: the control plane does not start\n", 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			status, text := ending(reportMutants(&out, c.results, 3, c.err, c.interrupted), c.interrupted)
			require.Equal(t, c.status, status)
			require.Equal(t, c.want, text)
			for _, text := range c.says {
				require.Contains(t, out.String(), text)
			}
			require.Equal(t, c.says == nil, out.Len() == 0)
		})
	}
}

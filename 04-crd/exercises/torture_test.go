package exercises

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/mutants"
	"example.com/controllers/harness/torture"
	"example.com/controllers/harness/torturetest"
)

// The controller as it is lives through faults on both sides that are drawn at random, and of some that are not as
// it is, torture says why.
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a minute")
	}
	t.Parallel()
	scenario, err := torture.Read("torture/scenario.yaml")
	require.NoError(t, err)
	broken, err := mutants.Read("mutants", "create-without-look-up,finalizer-after-create")
	require.NoError(t, err)
	torturetest.Require(t, scenario, torture.Options{Seed: 1, Seeds: 8}, broken)
}

func TestTheCatalogueCanBeRead(t *testing.T) {
	catalogue, err := mutants.Read("mutants", "")
	require.NoError(t, err)
	require.Greater(t, len(catalogue), 10)
}

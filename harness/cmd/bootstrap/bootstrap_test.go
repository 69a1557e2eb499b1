package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A package that the workshop's command is built from must be among its sources.
func TestSourcesAreAllOfThem(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../workshop").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range strings.Fields(string(out)) {
		if local, ok := strings.CutPrefix(name, "example.com/controllers/harness/"); ok {
			require.True(t, slices.Contains(workshop("").Sources, local), "%s is not among the sources", local)
		}
	}
}

package repository

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/testinput"
)

// A mutant is a patch against a lesson's code, and must be refreshed when that code changes. Its tests try only some.
func TestMutantsApply(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	lessons, err := filepath.Glob(filepath.Join(root, "0*"))
	require.NoError(t, err)
	testinput.DeclareOnly(root)
	for _, lesson := range lessons { // one may get its first mutant
		mutants := filepath.Join(lesson, "test", "mutants")
		testinput.DeclareOnly(mutants, filepath.Join(mutants, "unit"))
	}
	patches, err := filepath.Glob(filepath.Join(root, "0*", "test", "mutants", "*.patch"))
	require.NoError(t, err)
	unit, err := filepath.Glob(filepath.Join(root, "0*", "test", "mutants", "unit", "*.patch"))
	require.NoError(t, err)
	require.NotEmpty(t, patches)
	require.NotEmpty(t, unit)
	for _, patch := range append(patches, unit...) {
		relative, err := filepath.Rel(root, patch)
		require.NoError(t, err)
		lesson := filepath.Join(root, strings.Split(relative, string(filepath.Separator))[0])
		testinput.Declare(patch, lesson)
		git := exec.CommandContext(t.Context(), "git", "apply", "--check", patch)
		// As in a copy of the lesson, which is no repository.
		git.Dir, git.Env = lesson, append(git.Environ(), "GIT_CEILING_DIRECTORIES="+root)
		out, err := git.CombinedOutput()
		require.NoError(t, err, "%s does not apply: %s", relative, out)
	}
}

// Package mutantstest tests that a lesson's unit tests catch the bugs that torture cannot see.
package mutantstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
)

// UnitTests applies each patch in a directory to a copy of a module's top-level package, one at a time, and requires that the
// unit test named in the patch's line "Fails:" fails with it.
func UnitTests(t *testing.T, module, dir string) {
	suite.Long(t, "it compiles the lesson once for each mutant")
	t.Parallel()
	patches, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	require.NoError(t, err)
	require.NotEmpty(t, patches)
	sources, err := filepath.Glob(filepath.Join(module, "*.go"))
	require.NoError(t, err)
	sources = append(sources, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum"))
	testinput.Declare(sources...)
	testinput.DeclareOnly(module)
	env, err := environ.Isolated(filepath.Join(t.TempDir(), "home")) // nobody knows what a test does with a bug
	require.NoError(t, err)
	settings, err := environ.GoCommand(t.Context())
	require.NoError(t, err)
	env = append(append(env, settings...), "GOWORK=off", "CGO_ENABLED=0", "KUBE_CACHE_MUTATION_DETECTOR=true")
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, source := range sources {
				text, err := os.ReadFile(source)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(source)), text, 0o600))
			}
			patch, err := filepath.Abs(patch)
			require.NoError(t, err)
			text, err := os.ReadFile(patch)
			require.NoError(t, err)
			_, after, _ := strings.Cut(string(text), "\nFails: ")
			name, _, _ := strings.Cut(after, "\n")
			require.NotEmpty(t, name)
			run := func(words ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
				cmd.Dir = dir
				cmd.Env = append(slices.Clone(env), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
				output, err := cmd.CombinedOutput()
				return string(output), err
			}
			output, err := run("git", "apply", patch)
			require.NoError(t, err, output)
			output, err = run("go", "test", "-vet=off", "-ldflags=-s", "-run", "^"+name+"$", ".")
			require.Error(t, err, "%s passes with the bug", name)
			require.Contains(t, output, "--- FAIL: "+name, output)
		})
	}
}

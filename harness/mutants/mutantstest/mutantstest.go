// Package mutantstest tests that a lesson's unit tests catch the bugs that torture cannot see.
package mutantstest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
)

// UnitTests applies each patch in a directory to a copy of a module, one at a time, and requires that the unit test named in
// the patch's line "Fails:", of whichever package, fails with it.
func UnitTests(t *testing.T, module, dir string) {
	suite.Long(t, "it compiles the lesson once for each mutant")
	t.Parallel()
	patches, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	require.NoError(t, err)
	require.NotEmpty(t, patches)
	sources, tests := sourcesOf(t, module)
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
				text, err := os.ReadFile(filepath.Join(module, source))
				require.NoError(t, err)
				require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(source)), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(dir, source), text, 0o600))
			}
			patch, err := filepath.Abs(patch)
			require.NoError(t, err)
			text, err := os.ReadFile(patch)
			require.NoError(t, err)
			_, after, _ := strings.Cut(string(text), "\nFails: ")
			name, _, _ := strings.Cut(after, "\n")
			require.Contains(t, tests, name, "there is no such test")
			run := func(words ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
				cmd.Dir = dir
				cmd.Env = append(slices.Clone(env), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
				output, err := cmd.CombinedOutput()
				return string(output), err
			}
			output, err := run("git", "apply", patch)
			require.NoError(t, err, output)
			output, err = run("go", "test", "-vet=off", "-ldflags=-s", "-run", "^"+name+"$", "./"+tests[name])
			require.Error(t, err, "%s passes with the bug", name)
			require.Contains(t, output, "--- FAIL: "+name, output)
		})
	}
}

// sourcesOf returns the files of a module that its packages are made of, without the modules and the programs in it, relative
// to its directory, and the directory of each test.
func sourcesOf(t *testing.T, module string) (files []string, tests map[string]string) {
	tests = map[string]string{}
	require.NoError(t, filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(module, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			testinput.DeclareOnly(path)
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if inside != "." && (err == nil || entry.Name() == "cmd" || strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if inside != "go.mod" && inside != "go.sum" && filepath.Ext(path) != ".go" {
			return nil
		}
		testinput.Declare(path)
		files = append(files, inside)
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range testFunction.FindAllSubmatch(text, -1) {
			tests[string(found[1])] = filepath.Dir(inside)
		}
		return err
	}))
	return files, tests
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

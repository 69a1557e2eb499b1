// Package repository tests the repository as a whole: its modules stand alone and agree on their dependencies.
package repository

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
)

// runGo runs the go command in a directory and returns its standard output.
func runGo(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go %s in %s: %s", strings.Join(args, " "), dir, &stderr)
	return string(out)
}

// moduleDirs returns the directories of the workspace's modules, relative to root.
func moduleDirs(t *testing.T, root string) []string {
	t.Helper()
	var work struct{ Use []struct{ DiskPath string } }
	require.NoError(t, json.Unmarshal([]byte(runGo(t, root, nil, "work", "edit", "-json")), &work))
	var dirs []string
	for _, use := range work.Use {
		dirs = append(dirs, filepath.Clean(use.DiskPath))
	}
	return dirs
}

// moduleVersions returns the version of each module that the packages matching patterns, and their tests, are built
// from, by module path. The version of modules in this repository is "".
func moduleVersions(t *testing.T, dir string, env []string, patterns ...string) map[string]string {
	t.Helper()
	args := append([]string{"list", "-deps", "-test", "-f", `{{with .Module}}{{.Path}} {{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}{{end}}`}, patterns...)
	all := map[string]string{}
	for line := range strings.Lines(runGo(t, dir, env, args...)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path != "" {
			all[path] = version
		}
	}
	return all
}

// lessonDir matches the directory of a lesson.
var lessonDir = regexp.MustCompile(`^\d\d-[a-z-]+$`)

// Each module builds from the same versions with and without the workspace. So the tests that run in the workspace
// also hold for a lesson that is copied elsewhere, and nothing needs to be compiled twice to know that.
func TestModulesBuildFromTheSameVersionsWithoutTheWorkspace(t *testing.T) {
	suite.Long(t, "it lists the packages of each module")
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	testinput.Declare(filepath.Join(root, "go.work"), filepath.Join(root, "go.work.sum"))
	dirs := moduleDirs(t, root)
	var patterns []string
	for _, dir := range dirs {
		testinput.Declare(filepath.Join(root, dir))
		patterns = append(patterns, "./"+dir+"/...")
	}
	inWorkspace := moduleVersions(t, root, nil, patterns...)
	lessons := 0
	for _, dir := range dirs {
		t.Run(dir, func(t *testing.T) {
			standalone := moduleVersions(t, filepath.Join(root, dir), []string{"GOWORK=off"}, "./...")
			for _, path := range slices.Sorted(maps.Keys(standalone)) {
				require.Equal(t, inWorkspace[path], standalone[path], "module %s has another version in the workspace; run \"go work sync\"", path)
			}
			if !lessonDir.MatchString(dir) {
				return
			}
			lessons++
			require.Contains(t, standalone, modulePath(t, root, dir))
			for path := range standalone {
				isOurs := strings.HasPrefix(path, "example.com/controllers/") && path != modulePath(t, root, dir)
				require.False(t, isOurs, "a lesson must not import other modules of this repository; this one imports %s", path)
			}
			var mod struct {
				Replace []struct{ Old struct{ Path string } }
			}
			require.NoError(t, json.Unmarshal([]byte(runGo(t, filepath.Join(root, dir), nil, "mod", "edit", "-json")), &mod))
			require.Empty(t, mod.Replace, "a lesson must have no replace directives: their targets are missing when it is copied elsewhere")
		})
	}
	require.GreaterOrEqual(t, lessons, 4, "lessons found")
}

// modulePath returns the path of the module in dir.
func modulePath(t *testing.T, root, dir string) string {
	t.Helper()
	return strings.TrimSpace(runGo(t, filepath.Join(root, dir), []string{"GOWORK=off"}, "list", "-m"))
}

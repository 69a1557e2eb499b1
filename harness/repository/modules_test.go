// Package repository has tests of the repository as a whole.
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
	"example.com/controllers/harness/testinput"
)

// goCommand runs the go command in a directory and returns what it prints.
func goCommand(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go %s in %s: %s", strings.Join(args, " "), dir, &stderr)
	return string(out)
}

// modules are those of the workspace, by their directories.
func modules(t *testing.T, root string) []string {
	t.Helper()
	var work struct{ Use []struct{ DiskPath string } }
	require.NoError(t, json.Unmarshal([]byte(goCommand(t, root, nil, "work", "edit", "-json")), &work))
	var dirs []string
	for _, use := range work.Use {
		dirs = append(dirs, filepath.Clean(use.DiskPath))
	}
	return dirs
}

// versions returns the modules that the packages of these patterns, and their tests, are built from. Those that are
// in this repository have no version.
func versions(t *testing.T, dir string, env []string, patterns ...string) map[string]string {
	t.Helper()
	args := append([]string{"list", "-deps", "-test", "-f", `{{with .Module}}{{.Path}} {{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}{{end}}`}, patterns...)
	all := map[string]string{}
	for line := range strings.Lines(goCommand(t, dir, env, args...)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path != "" {
			all[path] = version
		}
	}
	return all
}

var lesson = regexp.MustCompile(`^\d\d-[a-z-]+$`)

// Each module builds without the workspace, from the same versions as in it. So what is tested in the workspace is
// what somebody gets who copies a lesson, and nothing needs to be compiled a second time to know that.
func TestModulesStandAlone(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	testinput.Declare(filepath.Join(root, "go.work"), filepath.Join(root, "go.work.sum"))
	dirs := modules(t, root)
	var patterns []string
	for _, dir := range dirs {
		testinput.Declare(filepath.Join(root, dir))
		patterns = append(patterns, "./"+dir+"/...")
	}
	together := versions(t, root, nil, patterns...)
	lessons := 0
	for _, dir := range dirs {
		t.Run(dir, func(t *testing.T) {
			alone := versions(t, filepath.Join(root, dir), []string{"GOWORK=off"}, "./...")
			for _, path := range slices.Sorted(maps.Keys(alone)) {
				require.Equal(t, together[path], alone[path], "%s has another version in the workspace; run \"go work sync\"", path)
			}
			if !lesson.MatchString(dir) {
				return
			}
			lessons++
			require.Contains(t, alone, modulePath(t, root, dir))
			for path := range alone {
				isOurs := strings.HasPrefix(path, "example.com/controllers/") && path != modulePath(t, root, dir)
				require.False(t, isOurs, "a lesson is a module of its own, and this one needs %s", path)
			}
			var mod struct {
				Replace []struct{ Old struct{ Path string } }
			}
			require.NoError(t, json.Unmarshal([]byte(goCommand(t, filepath.Join(root, dir), nil, "mod", "edit", "-json")), &mod))
			require.Empty(t, mod.Replace, "a lesson that is copied elsewhere does not find what it replaces modules with")
		})
	}
	require.GreaterOrEqual(t, lessons, 4)
}

func modulePath(t *testing.T, root, dir string) string {
	t.Helper()
	return strings.TrimSpace(goCommand(t, filepath.Join(root, dir), []string{"GOWORK=off"}, "list", "-m"))
}

package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
)

// If a package of the program is not among its sources, a change of it does not cause a new build.
func TestProgramSourcesAreComplete(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	program := cluster.Program(root)
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Version}}{{$.Dir}}{{end}}{{end}}", program.Package)
	list.Dir = program.Dir
	list.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	out, err := list.CombinedOutput()
	require.NoError(t, err, "%s", out)
	dirs := strings.Fields(string(out))
	require.Contains(t, dirs, program.Dir)
	for _, dir := range dirs {
		require.True(t, isWithin(dir, program.Dir, program.Sources), "add %s to the sources in cluster.Program: %v", dir, program.Sources)
	}
}

// isWithin reports whether dir is one of the sources, which are relative to base, or in one of them.
func isWithin(dir, base string, sources []string) bool {
	for _, source := range sources {
		relative, err := filepath.Rel(filepath.Join(base, source), dir)
		if err == nil && !strings.HasPrefix(relative, "..") {
			return true
		}
	}
	return false
}

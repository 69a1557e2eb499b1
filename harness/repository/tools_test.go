package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/testinput"
)

// "make tools" writes a tool only if it has changed. Otherwise, tests that depend on one would always run again.
func TestMakeToolsKeepsWhatHasNotChanged(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	makefile := filepath.Join(root, "Makefile")
	testinput.Declare(makefile)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("tools/go.mod", "module example.com/tools\n\ngo 1.26.0\n\ntool example.com/tools/hammer\n")
	write("tools/hammer/main.go", "package main\n\nfunc main() {}\n")
	write("harness/go.mod", "module example.com/harness\n\ngo 1.26.0\n")
	write("harness/cmd/vet/main.go", "package main\n\nfunc main() {}\n")
	programs := []string{filepath.Join(dir, ".workshop", "bin", "hammer"), filepath.Join(dir, ".workshop", "bin", "vet")}
	makeTools := func() {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "make", "-s", "-f", makefile, "tools")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	makeTools()
	hourAgo := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, program := range programs {
		require.NoError(t, os.Chtimes(program, hourAgo, hourAgo))
	}
	isOld := func(program string) bool {
		t.Helper()
		info, err := os.Stat(program)
		require.NoError(t, err)
		return info.ModTime().Equal(hourAgo)
	}
	makeTools()
	for _, program := range programs {
		require.True(t, isOld(program), "%s has not changed", program)
	}
	write("tools/hammer/main.go", "package main\n\nfunc main() { println(1) }\n")
	makeTools()
	require.False(t, isOld(programs[0]), "the hammer has changed")
	require.True(t, isOld(programs[1]), "vet has not changed")
}

package testinput

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testSource is a test that declares files outside of its module.
const testSource = `package lesson

import (
	"testing"

	"example.com/controllers/harness/testinput"
)

func TestPage(t *testing.T) {
	testinput.Declare("../page.md", "../manifests", "../later.md")
	testinput.DeclareOnly("../cmd", "../cmd/main.go")
}
`

// The go command runs a test again when a declared file outside of its module has changed, and only then. No
// documentation promises what [Declare] relies on.
func TestDeclaredFilesInvalidateTheCachedResult(t *testing.T) {
	harness, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("go.work", "go 1.26.0\n\nuse (\n\t./test\n\t"+harness+"\n)\n")
	write("test/go.mod", "module example.com/lesson/test\n\ngo 1.26.0\n")
	write("test/lesson_test.go", testSource)
	write("page.md", "one")
	write("manifests/a.yaml", "one")
	write("manifests/base/b.yaml", "one")
	write("cmd/main.go", "one")
	write("cmd/main_test.go", "one")
	write("undeclared.md", "one")
	isCached := func() bool {
		cmd := exec.CommandContext(t.Context(), "go", "test", ".")
		cmd.Dir = filepath.Join(dir, "test")
		cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(dir, "go.work"), "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.Contains(string(out), "(cached)")
	}
	require.False(t, isCached())
	require.True(t, isCached())
	for _, change := range []struct {
		name   string
		apply  func()
		reruns bool
	}{
		{"a file changes", func() { write("page.md", "another") }, true},
		{"a file in a directory changes", func() { write("manifests/a.yaml", "another") }, true},
		{"a file in a subdirectory changes", func() { write("manifests/base/b.yaml", "another") }, true},
		{"a file is added", func() { write("manifests/base/c.yaml", "one") }, true},
		{"a file is removed", func() { require.NoError(t, os.Remove(filepath.Join(dir, "manifests/a.yaml"))) }, true},
		{"a declared file that did not exist is added", func() { write("later.md", "one") }, true},
		{"a file changes that is not declared itself, only its directory with DeclareOnly", func() { write("cmd/main_test.go", "another") }, false},
		{"a file that DeclareOnly has declared changes", func() { write("cmd/main.go", "another") }, true},
		{"a file is added to a directory that DeclareOnly has declared", func() { write("cmd/new.go", "one") }, true},
		{"a file that is not declared changes", func() { write("undeclared.md", "another") }, false},
	} {
		change.apply()
		require.Equal(t, change.reruns, !isCached(), "%s: the test ran again", change.name)
		require.True(t, isCached(), "%s: the result of the second run is cached", change.name)
	}
}

package testinput

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const declaring = `package lesson

import (
	"testing"

	"example.com/controllers/harness/testinput"
)

func TestPage(t *testing.T) {
	testinput.Declare("../page.md", "../manifests", "../later.md")
	testinput.DeclareOnly("../cmd", "../cmd/main.go")
}
`

// The go command runs a test again when something outside of its module has changed that it has declared, and
// only then. This is what [Declare] relies on and what no documentation promises.
func TestTheTestIsRunAgain(t *testing.T) {
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
	write("test/lesson_test.go", declaring)
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
		what string
		do   func()
		runs bool
	}{
		{"a file changes", func() { write("page.md", "another") }, true},
		{"a file in a directory changes", func() { write("manifests/a.yaml", "another") }, true},
		{"a file further down changes", func() { write("manifests/base/b.yaml", "another") }, true},
		{"a file is added", func() { write("manifests/base/c.yaml", "one") }, true},
		{"a file is removed", func() { require.NoError(t, os.Remove(filepath.Join(dir, "manifests/a.yaml"))) }, true},
		{"a file that was not there comes", func() { write("later.md", "one") }, true},
		{"one of two files changes that one was declared of", func() { write("cmd/main_test.go", "another") }, false},
		{"the other changes", func() { write("cmd/main.go", "another") }, true},
		{"a file comes beside them", func() { write("cmd/new.go", "one") }, true},
		{"what was not declared changes", func() { write("undeclared.md", "another") }, false},
	} {
		change.do()
		require.Equal(t, change.runs, !isCached(), change.what)
		require.True(t, isCached(), change.what)
	}
}

package gobuild

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newProgram returns a program that prints text, in a module of its own, and sets up an empty cache.
func newProgram(t *testing.T, text string) Program {
	t.Helper()
	t.Setenv("WORKSHOP_CACHE", t.TempDir())
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.com/program\n\ngo 1.26.0\n")
	p := Program{Name: "program", Dir: dir, Package: ".", Sources: []string{"."}}
	setText(t, p, text)
	return p
}

// setText changes the program's source so that it prints text.
func setText(t *testing.T, p Program, text string) {
	t.Helper()
	write(t, filepath.Join(p.Dir, "main.go"), "package main\n\nimport \"fmt\"\n\nvar more string\n\nfunc main() { fmt.Print(\""+text+"\", more) }\n")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// build builds the program, runs it, and returns the output of both.
func build(t *testing.T, p Program) (output, progress string) {
	t.Helper()
	var out bytes.Buffer
	path, err := Build(t.Context(), p, &out)
	require.NoError(t, err)
	text, err := exec.Command(path).Output()
	require.NoError(t, err)
	return string(text), out.String()
}

func TestBuildsOnlyWhenSourcesOrFlagsHaveChanged(t *testing.T) {
	p := newProgram(t, "one")
	output, progress := build(t, p)
	require.Equal(t, "one", output)
	require.Contains(t, progress, "built program in ")

	output, progress = build(t, p)
	require.Equal(t, "one", output)
	require.Empty(t, progress, "nothing has changed, so nothing is built")

	setText(t, p, "two")
	output, progress = build(t, p)
	require.Equal(t, "two", output)
	require.Contains(t, progress, "built program in ")

	setText(t, p, "one")
	_, progress = build(t, p)
	require.Empty(t, progress, "the first build is still in the cache")

	write(t, filepath.Join(p.Dir, "main_test.go"), "package main")
	write(t, filepath.Join(p.Dir, "README.md"), "words")
	write(t, filepath.Join(p.Dir, ".main.go.swp"), "of an editor")
	require.NoError(t, os.Mkdir(filepath.Join(p.Dir, "node_modules"), 0o700))
	write(t, filepath.Join(p.Dir, "node_modules", "index.js"), "of npm")
	require.NoError(t, os.Symlink("nobody@nowhere", filepath.Join(p.Dir, ".#main.go")))
	_, progress = build(t, p)
	require.Empty(t, progress, "tests, Markdown and hidden files are not part of the program")

	source, err := os.ReadFile(filepath.Join(p.Dir, "main.go"))
	require.NoError(t, err)
	write(t, filepath.Join(p.Dir, "main.go"), "// Command main prints.\n"+string(source))
	_, progress = build(t, p)
	require.Empty(t, progress, "nor is a comment")

	// "make" sets this flag, and a person who runs the tests may not.
	t.Setenv("GOFLAGS", "-modcacherw")
	build(t, p)
	t.Setenv("GOFLAGS", "-modcacherw -buildvcs=auto")
	_, progress = build(t, p)
	require.Empty(t, progress, "nothing is stamped with a revision")

	p.LDFlags = "-X main.more=!"
	output, _ = build(t, p)
	require.Equal(t, "one!", output)
}

// Packages that a pattern of the file Lean matches are compiled differently, and so more than once. Others are not.
func TestLean(t *testing.T) {
	p := newProgram(t, "one")
	require.NoError(t, os.Mkdir(filepath.Join(p.Dir, "part"), 0o700))
	write(t, filepath.Join(p.Dir, "part", "part.go"), "package part\n\nconst Text = \"part\"\n")
	write(t, filepath.Join(p.Dir, "main.go"), "package main\n\nimport \"example.com/program/part\"\n\nfunc main() { print(part.Text) }\n")
	_, progress := build(t, p)
	require.Contains(t, progress, " compiled)")

	p.Lean = "lean.txt"
	_, err := Build(t.Context(), p, new(bytes.Buffer))
	require.ErrorContains(t, err, "lean.txt")
	write(t, filepath.Join(p.Dir, p.Lean), "example.com/other/...\n")
	_, progress = build(t, p)
	require.Contains(t, progress, "(1 compiled)", "the pattern matches none, and a program is always linked")
	write(t, filepath.Join(p.Dir, p.Lean), "example.com/program/part/...\nexample.com/other/...\n")
	_, progress = build(t, p)
	require.Contains(t, progress, "(2 compiled)", "the package, and what imports it")
}

func TestWithoutComments(t *testing.T) {
	const code = "package p\n\nfunc f() int { return 1 }\n"
	same := func(name, a, b string) bool {
		return bytes.Equal(withoutComments(name, []byte(a)), withoutComments(name, []byte(b)))
	}
	require.True(t, same("p.go", code, "// Package p is one.\npackage p\n\n/* f is\n one */\nfunc f() int { /* 2 */ return 1 } // always\n\n"))
	for name, other := range map[string]string{
		"other code":            strings.Replace(code, "1", "2", 1),
		"another string":        strings.Replace(code, "return 1", "return len(\"// 1\")", 1),
		"a build constraint":    "//go:build linux\n\n" + code,
		"a directive":           strings.Replace(code, "func", "//go:noinline\nfunc", 1),
		"an end of a statement": strings.Replace(code, "return 1", "return\n1", 1),
		"a line":                strings.Replace(code, "func", "//line x.go:1\nfunc", 1),
		"code that is invalid":  code + "'",
	} {
		require.False(t, same("p.go", code, other), name)
	}
	require.False(t, same("p.yaml", "a: 1 // b", "a: 1 // c"))
	require.False(t, same("p.go", "package p\n\n// #define A 1\nimport \"C\"\n", "package p\n\n// #define A 2\nimport \"C\"\n"))
	require.False(t, same("p.go", code+"'//a", code+"'//b"), "all of a file that is invalid counts")
}

func TestExtraPackagesAreBuiltIntoTheSameDirectory(t *testing.T) {
	p := newProgram(t, "one")
	require.NoError(t, os.Mkdir(filepath.Join(p.Dir, "second"), 0o700))
	write(t, filepath.Join(p.Dir, "second", "main.go"), "package main\n\nfunc main() { print(2) }\n")
	p.ExtraPackages = []string{"./second"}
	output, _ := build(t, p)
	require.Equal(t, "one", output)
	path, err := Build(t.Context(), p, new(bytes.Buffer))
	require.NoError(t, err)
	out, err := exec.Command(filepath.Join(filepath.Dir(path), "second")).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "2", string(out))
}

func TestCacheKeepsTheMostRecentBuilds(t *testing.T) {
	p := newProgram(t, "")
	texts := []string{"a", "b", "c", "d", "e"}
	for _, text := range texts {
		setText(t, p, text)
		build(t, p)
	}
	builds, err := filepath.Glob(filepath.Join(os.Getenv("WORKSHOP_CACHE"), "program", "*", "program"))
	require.NoError(t, err)
	require.Len(t, builds, maxBuilds)
	setText(t, p, "e")
	_, progress := build(t, p)
	require.Empty(t, progress, "the most recent build is one of them")
}

func TestConcurrentCallsBuildOnce(t *testing.T) {
	p := newProgram(t, "one")
	var builds sync.Map
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			var progress bytes.Buffer
			if _, err := Build(t.Context(), p, &progress); err != nil {
				t.Error(err)
			}
			if strings.Contains(progress.String(), "built program in ") {
				builds.Store(i, true)
			}
		})
	}
	group.Wait()
	count := 0
	builds.Range(func(any, any) bool { count++; return true })
	require.Equal(t, 1, count)
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	t.Run("code that does not compile", func(t *testing.T) {
		p := newProgram(t, "one")
		write(t, filepath.Join(p.Dir, "main.go"), "package main\n\nfunc main() { undefined() }\n")
		_, err := Build(t.Context(), p, new(bytes.Buffer))
		require.ErrorContains(t, err, "build program in "+p.Dir)
		require.ErrorContains(t, err, "undefined: undefined")
		leftover, err := filepath.Glob(filepath.Join(os.Getenv("WORKSHOP_CACHE"), "program", "*.partial"))
		require.NoError(t, err)
		require.Empty(t, leftover)
	})
	t.Run("a module that needs a newer Go", func(t *testing.T) {
		p := newProgram(t, "one")
		t.Setenv("GOTOOLCHAIN", "local")
		write(t, filepath.Join(p.Dir, "go.mod"), "module example.com/program\n\ngo 1.999.0\n")
		_, err := Build(t.Context(), p, new(bytes.Buffer))
		require.ErrorContains(t, err, "requires go >= 1.999.0")
	})
	t.Run("no go command on the PATH", func(t *testing.T) {
		p := newProgram(t, "one")
		t.Setenv("PATH", t.TempDir())
		_, err := Build(t.Context(), p, new(bytes.Buffer))
		require.ErrorContains(t, err, "there is no go command on the PATH; install Go 1.26")
	})
	t.Run("a cache that is not writable", func(t *testing.T) {
		p := newProgram(t, "one")
		file := filepath.Join(t.TempDir(), "file")
		write(t, file, "")
		t.Setenv("WORKSHOP_CACHE", filepath.Join(file, "cache"))
		_, err := Build(t.Context(), p, new(bytes.Buffer))
		require.ErrorContains(t, err, "set WORKSHOP_CACHE to a writable directory")
	})
	t.Run("missing sources", func(t *testing.T) {
		p := newProgram(t, "one")
		p.Sources = []string{"nowhere"}
		_, err := Build(t.Context(), p, new(bytes.Buffer))
		require.ErrorContains(t, err, "read the sources of program")
	})
	t.Run("an interrupted build returns the cause", func(t *testing.T) {
		p := newProgram(t, "one")
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("Ctrl-C")
		_, err := Build(ctx, p, cancelOn{"linking", func() { cancel(why) }})
		require.ErrorIs(t, err, why)
	})
}

// cancelOn is a writer that calls cancel when something that contains text is written to it.
type cancelOn struct {
	text   string
	cancel func()
}

func (c cancelOn) Write(text []byte) (int, error) {
	if strings.Contains(string(text), c.text) {
		c.cancel()
	}
	return len(text), nil
}

func TestProgressIsOneLineOnATerminalAndFewElsewhere(t *testing.T) {
	var out bytes.Buffer
	line := newProgressLine(&out, "thing")
	line.total = 3
	line.compiled = 1
	line.show("some/package")
	line.compiled = 2
	line.show("other/package") // too soon after the last line
	line.printed = time.Now().Add(-time.Hour)
	line.compiled = 3
	line.show("last/package")
	line.done()
	line.close()
	require.Equal(t, []string{
		"building thing: 1 of 3 packages, 0s",
		"building thing: linking, 0s",
		"built thing in 0s (3 compiled)",
	}, strings.Split(strings.TrimSpace(out.String()), "\n"))

	out.Reset()
	line = newProgressLine(&out, "thing")
	line.terminal, line.total, line.compiled = true, 3, 1
	line.show("some/package")
	line.done()
	line.close()
	require.Equal(t, "\r\x1b[Kbuilding thing: 1 of 3 packages  some/package, 0s\r\x1b[Kbuilt thing in 0s (3 compiled)\n", out.String())

	out.Reset()
	line = newProgressLine(&out, "thing")
	line.terminal, line.columns, line.total, line.compiled = true, 30, 3, 1
	line.show("some/package")
	require.Equal(t, "\r\x1b[Kbuilding thing: 1 of 3 packag", out.String())
}

// In the workspace, a module need not be downloadable.
func TestDownloadUsesTheWorkspace(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.work":  "go 1.26.0\n\nuse (\n\t./a\n\t./b\n)\n",
		"a/go.mod": "module example.com/a\n\ngo 1.26.0\n",
		"a/a.go":   "package a\n",
		"b/go.mod": "module example.com/b\n\ngo 1.26.0\n\nrequire example.com/a v0.0.0\n",
		"b/b.go":   "package b\n\nimport _ \"example.com/a\"\n",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	t.Setenv("GOWORK", "")
	t.Setenv("GOPROXY", "off")
	var progress bytes.Buffer
	require.NoError(t, Download(t.Context(), filepath.Join(root, "b"), "b", &progress))
	require.Empty(t, progress.String())
	require.NoError(t, os.Remove(filepath.Join(root, "go.work")))
	require.ErrorContains(t, Download(t.Context(), filepath.Join(root, "b"), "b", &progress), "example.com/a")
}

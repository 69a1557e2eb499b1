package offline

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/testinput"
)

// A bundle's compiled packages are for the workspace's modules, and the control plane's are not in it.
func TestModulesAreTheWorkspaces(t *testing.T) {
	testinput.Declare("../../go.work")
	dirs, err := modules("../..")
	require.NoError(t, err)
	require.Contains(t, dirs, "harness")
	require.Contains(t, dirs, "harness/controlplane")
	for _, dir := range dirs {
		require.FileExists(t, filepath.Join("../..", dir, "go.mod"))
	}
	_, err = modules(t.TempDir())
	require.ErrorContains(t, err, "go.work")
}

func TestProveHasNoNetwork(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Prove(t.Context(), t.TempDir(), &out, "go", "env", "GOPROXY", "GOVCS"))
	require.Equal(t, "off\n*:off\n", out.String())

	out.Reset()
	err := Prove(t.Context(), t.TempDir(), &out, "go", "mod", "download", "rsc.io/quote@v1.5.1")
	require.ErrorContains(t, err, "without network, go mod download")
	require.Contains(t, out.String(), "GOPROXY=off")
}

// Commands on the pages run in the workspace, where the go command may read more than in each module alone.
func TestLoadWorkspace(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("go.work", "go 1.26.0\n\nuse (\n\t./a\n\t./b\n)\n")
	write("a/go.mod", "module example.com/a\n\ngo 1.26.0\n")
	write("a/a.go", "package a\n")
	write("b/go.mod", "module example.com/b\n\ngo 1.26.0\n\nrequire example.com/a v0.0.0\n") // only the workspace has it
	write("b/b.go", "package b\n\nimport _ \"example.com/a\"\n")
	write("b/check_test.go", "//go:build exercise\n\npackage b\n")
	dirs, err := modules(root)
	require.NoError(t, err)
	require.NoError(t, loadWorkspace(t.Context(), root, dirs, io.Discard))
	write("b/check_test.go", "//go:build exercise\n\npackage b\n\nimport _ \"example.com/none\"\n")
	t.Setenv("GOPROXY", "off")
	require.ErrorContains(t, loadWorkspace(t.Context(), root, dirs, io.Discard), "b/check_test.go:5:8")
}

func TestPrefetchPart(t *testing.T) {
	require.ErrorContains(t, PrefetchPart(t.Context(), ".", "lessons", io.Discard), "there are programs and packages")
}

func TestBundleWrongInput(t *testing.T) {
	repository := t.TempDir()
	for _, args := range [][]string{{"init", "--quiet"}, {"-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--allow-empty", "-m", "m"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = repository
		require.NoError(t, cmd.Run())
	}
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no platform":           {Options{Root: repository, Platform: "linux"}, `"linux" is not a platform of Go's; linux/amd64`},
		"a platform without Go": {Options{Root: repository, Platform: "linux/z80"}, `"linux/z80" is not a platform`},
		"not a repository":      {Options{Root: t.TempDir(), Platform: "linux/amd64"}, "must be a git repository"},
		"not a directory":       {Options{Root: repository, Platform: "linux/amd64", File: filepath.Join(t.TempDir(), "none", "b.tar.gz")}, "create a directory for the bundle"},
		"what does not compile": {Options{Root: repository, Platform: HostPlatform(), Prefetch: []string{"false"}}, "compile the programs for " + HostPlatform()},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := c.options
			o.Progress = io.Discard
			if o.File == "" {
				o.File = filepath.Join(dir, "b.tar.gz")
			}
			require.ErrorContains(t, Bundle(t.Context(), o), c.want)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// What was executable stays so, and a link stays a link.
func TestArchive(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "workshop", "bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "workshop", "bin", "go"), []byte("#!/bin/sh\necho go\n"), 0o755))
	require.NoError(t, os.Symlink("go", filepath.Join(dir, "workshop", "bin", "link")))
	file := filepath.Join(out, "b.tar.gz")
	require.NoError(t, archive(t.Context(), dir, file))
	require.NoError(t, exec.Command("tar", "-xf", file, "-C", out).Run())
	compressed, err := os.Open(file)
	require.NoError(t, err)
	defer compressed.Close()
	plain, err := gzip.NewReader(compressed)
	require.NoError(t, err)
	count := 0
	for packed := tar.NewReader(plain); ; count++ {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.Zero(t, header.Uid+header.Gid, "%s belongs to somebody", header.Name)
		require.Empty(t, header.Uname+header.Gname)
	}
	require.Equal(t, 4, count)
	text, err := exec.Command(filepath.Join(out, "workshop", "bin", "link")).Output()
	require.NoError(t, err)
	require.Equal(t, "go\n", string(text))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file = filepath.Join(t.TempDir(), "b.tar.gz")
	require.ErrorIs(t, archive(ctx, dir, file), context.Canceled)
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Empty(t, left)
}

// The settings hold in a directory with a space in its name, whatever is set and installed on the machine.
func TestSettings(t *testing.T) {
	temp, err := filepath.EvalSymlinks(t.TempDir()) // as make has it
	require.NoError(t, err)
	dir := filepath.Join(temp, "a laptop")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, Dir, "build"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, Dir, "settings.mk"), []byte(settings), 0o644))
	const makefile = "-include .bundle/settings.mk\nshow:\n\t@echo \"$$GOPROXY|$$GOCACHE|$$GOFLAGS|$${GOROOT-no root}|$${PATH%%:*}|$$WORKSHOP_BUNDLE\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Makefile"), []byte(makefile), 0o644))
	cmd := exec.CommandContext(t.Context(), "make", "-s", "show")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOROOT=/elsewhere", "GOPROXY=https://proxy.example.com", "GOFLAGS=-mod=mod", "MAKEFLAGS=", "MAKELEVEL=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	own := filepath.Join(dir, Dir)
	escaped := filepath.Join(filepath.Dir(dir), "a%20laptop", Dir)
	require.Equal(t, "file://"+escaped+"/modules|"+own+"/build|-trimpath -modcacherw|no root|"+own+"/go/bin|"+own+"\n", string(out))
}

// A bundle is often made a week before it is used. The go command deletes what it has not used for five days, and must not.
func TestAnOldBundleKeepsItsPackages(t *testing.T) {
	dir := t.TempDir()
	cache := filepath.Join(dir, Dir, "build")
	require.NoError(t, os.MkdirAll(cache, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, Dir, "settings.mk"), []byte(settings), 0o644))
	goCommand, err := exec.LookPath("go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Makefile"), []byte("-include $(SETTINGS)\nbuild:\n\t@GOTOOLCHAIN=auto "+goCommand+" build -o program .\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/old\n\ngo 1.26.0\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o644))
	old := filepath.Join(cache, "00", "an-old-package-d")
	build := func(settings string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(old), 0o755))
		require.NoError(t, os.WriteFile(old, nil, 0o644))
		week := time.Now().Add(-7 * 24 * time.Hour)
		require.NoError(t, os.Chtimes(old, week, week))
		require.NoError(t, os.WriteFile(filepath.Join(cache, "trim.txt"), fmt.Append(nil, week.Unix()), 0o644))
		cmd := exec.CommandContext(t.Context(), "make", "-s", "build", "SETTINGS="+settings)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOCACHE="+cache, "GOWORK=off", "CGO_ENABLED=0", "MAKEFLAGS=", "MAKELEVEL=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	build("none")
	require.NoFileExists(t, old, "otherwise this test proves nothing")
	build(Dir + "/settings.mk")
	require.FileExists(t, old)
}

// What make exports in a bundle, and nothing else, is passed on.
func TestEnvironment(t *testing.T) {
	require.Empty(t, Environment())
	t.Setenv(Variable, "/a laptop/.bundle")
	t.Setenv("GOFLAGS", goFlags)
	environment := Environment()
	require.Contains(t, environment, "GOFLAGS="+goFlags)
	require.Equal(t, "/a laptop/.bundle/go/bin", GoDir())
	for line := range strings.Lines(settings) {
		if name, _, ok := strings.Cut(line, " := "); ok && strings.HasPrefix(name, "export ") && name != "export PATH" {
			require.Contains(t, environment, strings.TrimPrefix(name, "export ")+"="+os.Getenv(strings.TrimPrefix(name, "export ")))
		}
	}
}

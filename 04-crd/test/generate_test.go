package test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
)

// isGenerated reports whether "make generate" writes the file, a path relative to the lesson's directory.
func isGenerated(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(path, "generated/") && name != "staticcheck.conf" ||
		strings.HasPrefix(name, "zz_generated.") || strings.HasPrefix(path, "manifests/samplecrd.k8s.io_")
}

// files returns the contents of the lesson's files by path, without those of its test module.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	testinput.Declare(dir)
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == "test":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		all[path] = string(data)
		return err
	}))
	return all
}

// The committed files must be those that "make generate" generates from the types, in an empty directory elsewhere.
func TestGenerated(t *testing.T) {
	suite.Long(t, "builds the generators")
	skipWithRealNeutron(t)
	t.Parallel()
	committed := files(t, "..")
	dir := t.TempDir()
	for path, text := range committed {
		if isGenerated(path) || strings.HasSuffix(path, "_test.go") {
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	cmd := exec.CommandContext(t.Context(), "go", "generate", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	count, generated := 0, files(t, dir)
	for path := range committed {
		if isGenerated(path) {
			count++
			require.Contains(t, generated, path, `it is no longer generated; run "make generate" and commit the changes`)
		}
	}
	require.Greater(t, count, 20)
	for path, text := range generated {
		if isGenerated(path) {
			require.Equal(t, committed[path], text, `%s is out of date; run "make generate" and commit the changes`, path)
		}
	}
}

// The page explains each marker.
func TestMarkersAreExplained(t *testing.T) {
	skipWithRealNeutron(t)
	testinput.Declare("../README.md", "../apis")
	page, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	files, err := filepath.Glob("../apis/samplecrd/v1/*.go")
	require.NoError(t, err)
	marker := regexp.MustCompile(`(?m)^\s*// \+([a-zA-Z0-9]+(?::[a-z-]+)?)`)
	count := 0
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "zz_generated") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range marker.FindAllStringSubmatch(string(source), -1) {
			count++
			require.Contains(t, string(page), "`+"+m[1], "the page does not explain this marker")
		}
	}
	require.Greater(t, count, 20)
}

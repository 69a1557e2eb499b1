package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/testinput"
)

// elsewhere lists directories with tests that neither "make test" nor "make test-all" runs as packages, and what does.
var elsewhere = map[*regexp.Regexp]string{
	regexp.MustCompile(`^e2e$`):                  "make e2e",
	regexp.MustCompile(`^exercises/\d\d-`):       "the proof in exercises, which compiles all graders into one program",
	regexp.MustCompile(`^exercises/my(/|$)`):     "none: they are a participant's",
	regexp.MustCompile(`(^|/)testdata(/|$)`):     "none: they are data",
	regexp.MustCompile(`^\d\d-[^/]+/_skeleton/`): "the tests of harness/skeleton, which compile them with the lesson's code",
}

// Each test is run by "make test" or by what "make test-all" runs after it, as a whole.
func TestEveryTestIsRun(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	testinput.Declare(filepath.Join(root, "Makefile"), filepath.Join(root, "go.work"))
	short, rest := suites(t, root)
	for dir := range short {
		require.True(t, rest[dir], "make test-all runs %s with the race detector, too", dir)
	}
	// Flags that leave out tests. Package suite counts on "-short" in the first, and on its absence in the second.
	leavesOut := regexp.MustCompile(`[ '"]--?(test\.)?(run|skip|tags|short)\b`)
	require.Equal(t, []string{" -short"}, leavesOut.FindAllString(dryRun(t, root, "test-short"), -1))
	require.Empty(t, leavesOut.FindAllString(dryRun(t, root, "test-rest"), -1))
	both := dryRun(t, root, "test-all")
	first, second := strings.Index(both, ".workshop/test.json"), strings.Index(both, ".workshop/rest.json")
	require.True(t, 0 <= first && first < second, "make test-all runs make test first")

	directly := map[string]bool{ // files that ask testing.Short themselves
		"harness/suite/suite.go":            true,
		"harness/suite/suite_test.go":       true, // the test of suite.Long
		"harness/machine/example_test.go":   true, // an example cannot skip itself
		"04-crd/test/histories_test.go":     true, // it does less
		"harness/repository/suites_test.go": true,
	}
	tests := 0
	for _, module := range moduleDirs(t, root) {
		testinput.Declare(filepath.Join(root, module))
	}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() && name != "." && strings.HasPrefix(name, ".") { // copies, such as a bundle's
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), "testing.Short()") && !directly[name] {
			t.Errorf("%s: use suite.Long instead of testing.Short", name)
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir := filepath.ToSlash(filepath.Dir(name))
		for pattern := range elsewhere {
			if pattern.MatchString(dir) {
				return nil
			}
		}
		tests++
		if !rest[dir] {
			t.Errorf("%s: make test-all does not run the tests of %s", name, dir)
		}
		for _, constraint := range regexp.MustCompile(`(?m)^//go:build (.*)$`).FindAllStringSubmatch(string(text), 1) {
			if !regexp.MustCompile(`^(linux|unix|darwin|linux \|\| darwin)$`).MatchString(constraint[1]) {
				t.Errorf("%s: no suite sets the build tag %s", name, constraint[1])
			}
		}
		requireRunOnce(t, name, text, short[dir])
		return nil
	}))
	require.Greater(t, tests, 200)
}

// requireRunOnce reports tests that are skipped after "make test", because it has run them, and which it does not run.
func requireRunOnce(t *testing.T, name string, text []byte, inShort bool) {
	t.Helper()
	if !strings.Contains(string(text), "suite.Once(") && !strings.Contains(string(text), "suite.Ran(") {
		return
	}
	if !inShort {
		t.Errorf("%s: package suite skips a test after make test, which does not run the tests of this package", name)
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		body, ok := node.(*ast.BlockStmt)
		if !ok {
			return true
		}
		calls := map[string]bool{}
		for _, statement := range body.List {
			if call, ok := statement.(*ast.ExprStmt); ok {
				if call, ok := call.X.(*ast.CallExpr); ok {
					if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
						calls[selector.Sel.Name] = true
					}
				}
			}
		}
		if calls["Once"] && calls["Long"] {
			t.Errorf("%s: with suite.Once and suite.Long, neither make test nor make test-all runs a test", name)
		}
		return true
	})
}

// suites returns the directories of the packages whose tests "make test" runs, and of those that "make test-all" runs after it.
func suites(t *testing.T, root string) (short, rest map[string]bool) {
	t.Helper()
	dirs := map[string]string{}
	args := []string{"list", "-f", "{{.ImportPath}} {{.Dir}}"}
	for _, module := range moduleDirs(t, root) {
		args = append(args, "./"+module+"/...")
	}
	for line := range strings.Lines(runGo(t, root, nil, args...)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		relative, err := filepath.Rel(root, dir)
		require.NoError(t, err)
		dirs[path] = filepath.ToSlash(relative)
	}
	short, rest = map[string]bool{}, map[string]bool{}
	of := map[string]map[string]bool{"test-short": short, "test-rest": rest}
	for line := range strings.Lines(runMake(t, root, "-s", "suites")) {
		suite, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		require.NotEmpty(t, dirs[path], "%s", line)
		of[suite][dirs[path]] = true
	}
	require.NotEmpty(t, short)
	return short, rest
}

func dryRun(t *testing.T, root, target string) string {
	t.Helper()
	return runMake(t, root, "-n", target)
}

func runMake(t *testing.T, root string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	out, err := cmd.Output()
	require.NoError(t, err, "make %s", strings.Join(args, " "))
	return string(out)
}

package exercises

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/exercise"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
)

var writeGolden = flag.Bool("golden", false, "write the verdicts on the exercises as shipped to their failure.golden")

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

func open(t *testing.T) *exercise.Catalogue {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	c, err := exercise.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each exercise has its files, and nothing else is among them.
func TestFiles(t *testing.T) {
	t.Parallel()
	c := open(t)
	numbers := map[int]string{}
	names := map[string]bool{}
	for _, e := range c.Exercises {
		names[e.Name] = true
		if other := numbers[e.Number]; other != "" {
			t.Errorf("%s and %s have the same number", other, e.Name)
		}
		numbers[e.Number] = e.Name
		for _, problem := range e.Problems() {
			t.Error(problem)
		}
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"README.md", "go.mod", "go.sum", "doc.go", "proof_test.go", "internal", "my"}
	for _, entry := range entries {
		if name := entry.Name(); !names[name] && !slices.Contains(known, name) {
			t.Errorf("%s is not an exercise, and nothing uses it", name)
		}
	}
}

// Each exercise fails as shipped, with the verdict in failure.golden, and each solution passes. Vet and staticcheck find
// nothing in either of them. Each attempt passes or fails as it says. All are compiled into one program, with the race
// detector if the go command may use cgo; each check then runs in a process of its own.
//
// "make test" leaves out vet, staticcheck and the exercises that need a control plane. After it, the attempts in memory that
// must fail are left out: with the race detector, they would fail again.
func TestProof(t *testing.T) {
	t.Parallel()
	c := open(t)
	proof := newProof(t, c)
	// With the race detector if the go command may use cgo, so that vet, staticcheck and the tests share the compiled
	// dependencies.
	env := os.Environ()
	if os.Getenv("CGO_ENABLED") == "1" {
		env = append(env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -race -gcflags=all=-dwarf=false")) // as the Makefile does
	}
	t.Run("vet", func(t *testing.T) {
		suite.Long(t, "make test vets the code, but not with the solutions")
		t.Parallel()
		// Not of the program that imports them all: for that, each would be compiled.
		args := []string{"vet", "-tags=exercise", "./shipped/...", "./solution/..."}
		tool := filepath.Join(c.Root, ".workshop", "bin", "vet") // which saves time, if "make tools" has built it
		testinput.DeclareOnly(tool)
		if _, err := os.Stat(tool); err == nil {
			args = slices.Insert(args, 1, "-vettool="+tool)
		}
		proof.run(t, env, "go", args...)
	})
	t.Run("staticcheck", func(t *testing.T) {
		suite.Long(t, "staticcheck is not part of make test")
		t.Parallel()
		program := filepath.Join(c.Root, ".workshop", "bin", "staticcheck")
		testinput.DeclareOnly(program) // it may be built, or be another version
		if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
			t.Skip("there is no staticcheck; \"make tools\" builds it")
		}
		proof.run(t, env, program, "-tags=exercise", ".", "./internal/...", "./shipped/...", "./solution/...")
	})

	program := filepath.Join(t.TempDir(), "proof")
	proof.run(t, env, "go", "test", "-c", "-vet=off", "-gcflags=example.com/controllers/exercises/...=-dwarf=false -l", "-ldflags=-s", "-tags=exercise", "-o", program, ".")
	grader := &exercise.Grader{
		Catalogue: c,
		Kubeconfig: func(context.Context) (string, error) {
			shared, err := cluster.Shared()
			if err != nil {
				return "", err
			}
			return shared.Kubeconfig, nil
		},
		Limit: 5 * time.Minute, // no exercise hangs as shipped, and the race detector may be on
	}
	for _, e := range c.Exercises {
		check := func(t *testing.T, which string) exercise.Result {
			t.Helper()
			if e.Cluster {
				suite.Long(t, "it needs a control plane")
			}
			v, err := grader.Run(t.Context(), e, program, "-test.run=^TestProof$/^"+which+"-"+e.Name+"$")
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		t.Run(e.Name+"/fails as shipped", func(t *testing.T) {
			t.Parallel()
			v := check(t, "shipped")
			if v.Passed() {
				t.Fatalf("it passes as shipped, but should fail: %s", e.Fails)
			}
			if *writeGolden {
				if err := e.UpdateGolden(v); err != nil {
					t.Error(err)
				}
			}
			if err := e.CompareGolden(v); err != nil {
				t.Error(err)
			}
		})
		t.Run(e.Name+"/solution passes", func(t *testing.T) {
			t.Parallel()
			if v := check(t, "solution"); !v.Passed() {
				t.Errorf("%s\n%s", v.Text(100, 0), v.Output)
			}
		})
		attempts, err := e.Attempts()
		if err != nil {
			t.Fatal(err)
		}
		for _, attempt := range attempts {
			t.Run(e.Name+"/"+attempt.Name, func(t *testing.T) {
				if isTriedOnce(e, attempt) {
					suite.Once(t)
				}
				t.Parallel()
				if e.Vet == "" {
					if err := attempt.Judge(check(t, attempt.Name)); err != nil {
						t.Error(err)
					}
					return
				}
				v, err := grader.CheckAttempt(t.Context(), e, attempt.Name)
				if err == nil {
					err = attempt.Judge(v)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// isTriedOnce reports whether an attempt needs no second trial with the race detector: it must fail, and does so in memory.
func isTriedOnce(e exercise.Exercise, attempt exercise.Attempt) bool {
	return !e.Cluster && !attempt.Passes
}

// proof is a module with all exercises, all solutions and all attempts. Its directory is always the same, so that the go
// command can use what it has compiled before.
type proof struct{ dir string }

var replaced = regexp.MustCompile(`=> \.\./`)

func newProof(t *testing.T, c *exercise.Catalogue) proof {
	t.Helper()
	p := proof{filepath.Join(c.Root, ".workshop", "exercises")}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock := flock.New(p.dir + ".lock")
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock() })

	files := map[string][]byte{}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	files["go.mod"] = replaced.ReplaceAll(bytes.ReplaceAll(module, []byte("\nignore ./my\n"), nil), []byte("=> ../../"))
	if files["go.sum"], err = os.ReadFile("go.sum"); err != nil {
		t.Fatal(err)
	}
	// What several exercises share.
	if err := filepath.WalkDir("internal", func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && entry.IsDir() {
			return nil
		}
		if err == nil {
			files[path], err = os.ReadFile(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var imports, tests strings.Builder
	for _, e := range c.Exercises {
		sources, err := e.Sources()
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range lessonPath.FindAllSubmatch(sources.Grader, -1) {
			testinput.Declare(filepath.Join("..", string(match[1])))
		}
		codes := map[string]map[string][]byte{"shipped": sources.Shipped, "solution": sources.Solution}
		attempts, err := e.Attempts()
		if err != nil {
			t.Fatal(err)
		}
		for _, attempt := range attempts {
			if e.Vet != "" || suite.Ran() && isTriedOnce(e, attempt) {
				continue // with vet, each is compiled by itself, since that may find the mistake
			}
			if codes[attempt.Name], err = attempt.Code(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, which := range slices.Sorted(maps.Keys(codes)) {
			dir := filepath.Join(which, e.Name)
			for name, text := range codes[which] {
				files[filepath.Join(dir, name)] = withFewerInformers(text)
			}
			// Only files that are not tests can be imported.
			files[filepath.Join(dir, "grader.go")] = withFewerInformers(sources.Grader)
			alias := fmt.Sprintf("p%d", strings.Count(tests.String(), "\n"))
			fmt.Fprintf(&imports, "\t%s %q\n", alias, "example.com/controllers/exercises/"+which+"/"+e.Name)
			fmt.Fprintf(&tests, "\tt.Run(%q, %s.TestExercise)\n", which+"-"+e.Name, alias)
		}
	}
	files["proof_test.go"] = fmt.Appendf(nil, "//go:build exercise\n\npackage proof\n\nimport (\n\t\"testing\"\n\n%s)\n\nfunc TestProof(t *testing.T) {\n%s}\n", imports.String(), tests.String())
	if err := write(p.dir, files); err != nil {
		t.Fatal(err)
	}
	p.declarePackages(t, c.Root)
	return p
}

// withFewerInformers makes code import our package informers instead of client-go's, so that it compiles in half the time.
func withFewerInformers(code []byte) []byte {
	return bytes.ReplaceAll(code, []byte(`"k8s.io/client-go/informers"`), []byte(`"example.com/controllers/exercises/internal/informers"`))
}

// lessonPath matches what a grader uses of a lesson beside its Go packages, such as its manifests.
var lessonPath = regexp.MustCompile(`live\.Path\("([^"]+)"\)`)

// declarePackages tells Go's test cache which packages of the repository, such as a lesson's conformance suite, the graders
// are compiled from. The graders are compiled by a command, so the go command does not know.
func (p proof) declarePackages(t *testing.T, root string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "-tags=exercise", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", ".")
	list.Dir, list.Env = p.dir, append(os.Environ(), "GOWORK=off")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dir := range strings.Lines(string(out)) {
		relative, err := filepath.Rel(root, strings.TrimSpace(dir))
		if err == nil && filepath.IsLocal(relative) && !strings.HasPrefix(relative, ".") && !strings.HasPrefix(relative, "exercises") {
			testinput.Declare(filepath.Join(root, relative))
		}
	}
}

// write makes a directory have these files and no others.
func write(dir string, files map[string][]byte) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || files[name] != nil {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// run runs a command in the module, and fails the test if the command fails. The command ends when the test does, even if
// the test is killed.
func (p proof) run(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	var out bytes.Buffer
	status, err := guard.Exec(t.Context(), guard.Program{
		Path: path, Args: args, Dir: p.dir, Env: append(slices.Clip(env), "GOWORK=off", "GOTMPDIR="+temporary), Remove: temporary,
	}, &out)
	if err != nil || status != 0 {
		t.Fatalf("%s %s: exit status %d, %v\n%s", filepath.Base(name), strings.Join(args, " "), status, err, &out)
	}
}

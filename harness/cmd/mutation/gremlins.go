package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/proc"
)

// patience is how many times as long as without a mutant the tests of a package may take. The first time, they are
// compiled as well.
const patience = 6

// runner runs Gremlins on the packages of modules, one at a time, with one worker.
type runner struct {
	gremlins string         // its path
	only     *regexp.Regexp // of the files' paths, relative to the module
	since    string         // a commit; if it is "", all lines are mutated
	until    time.Time      // no mutant is begun after that, unless it is zero
}

// outcome is what became of the mutants of a module.
type outcome struct {
	mutants  []mutant
	notTried int      // mutants for which there was no time
	notBegun int      // packages for which there was none
	unfit    []string // packages that cannot be mutated, because their tests fail in a copy of the module
}

// isPart reports whether there was no time for some.
func (o outcome) isPart() bool { return o.notTried+o.notBegun > 0 }

func (g runner) run(ctx context.Context, module string) (all outcome, err error) {
	gremlins, err := filepath.Abs(g.gremlins)
	if err != nil {
		return outcome{}, err
	}
	var changed map[string][]lineRange
	if g.since != "" {
		if changed, err = changes(ctx, module, g.since); err != nil {
			return outcome{}, err
		}
	}
	scratch, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	env, err := environment(ctx, scratch)
	if err != nil {
		return outcome{}, err
	}
	late := filepath.Join(scratch, "late")
	if !g.until.IsZero() {
		env = append(env, lateFile+"="+late, fmt.Sprint(deadline, "=", g.until.Unix()))
	}
	copied := filepath.Join(scratch, "copy")
	if err := os.CopyFS(copied, os.DirFS(module)); err != nil {
		return outcome{}, err
	}
	packages, err := listPackages(ctx, module)
	if err != nil {
		return outcome{}, err
	}
	for _, p := range packages {
		dir, err := filepath.Rel(module, p.Dir)
		if err != nil {
			return outcome{}, err
		}
		c, err := g.choose(p, dir, changed)
		if err != nil {
			return outcome{}, err
		}
		if len(c.sources) == 0 {
			continue
		}
		if !g.until.IsZero() && time.Now().After(g.until) {
			fmt.Printf("\n%s: not begun, the time is up\n", p.ImportPath)
			all.notBegun++
			continue
		}
		fmt.Println("\n" + p.ImportPath)
		if err := runTests(ctx, filepath.Join(copied, dir), env); err != nil {
			if err := runTests(ctx, p.Dir, env); err != nil {
				return outcome{}, fmt.Errorf("the tests of %s fail without a mutant: %w", p.ImportPath, err)
			}
			fmt.Printf("Mutants run in a copy of the module, in which these tests fail even without one: %v\n", err)
			all.unfit = append(all.unfit, p.ImportPath)
			continue
		}
		output := filepath.Join(scratch, "output.json")
		if err := os.RemoveAll(output); err != nil {
			return outcome{}, err
		}
		cmd := exec.CommandContext(ctx, gremlins, append(c.args, "--output", output, p.Dir)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = module, os.Stdout, os.Stderr
		cmd.Env = append(slices.Clone(env), profile+"="+c.profile)
		proc.Group(cmd)
		err = cmd.Run()
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // programs whose tests were cut off by a time limit
		}
		if err := errors.Join(err, context.Cause(ctx)); err != nil {
			return outcome{}, fmt.Errorf("gremlins, in package %s: %w", p.ImportPath, err)
		}
		mutants, err := readOutput(output, dir, c.sources)
		if err != nil {
			return outcome{}, err
		}
		all.mutants = append(all.mutants, mutants...)
	}
	notes, err := os.ReadFile(late)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	all.leaveOut(strings.Count(string(notes), "\n"))
	return all, err
}

// choice is what of a package is mutated.
type choice struct {
	args    []string          // of Gremlins
	profile string            // see goCommand
	sources map[string]source // by the file's name
}

// choose chooses the files of the package in a directory of the module, and their lines. changed is nil if all lines are mutated.
func (g runner) choose(p goPackage, dir string, changed map[string][]lineRange) (choice, error) {
	c := choice{sources: map[string]source{}, args: []string{"unleash", "--workers", "1", "--timeout-coefficient", strconv.Itoa(patience),
		"--output-statuses", "lktv", // those of mutants that were run
		"--invert-logical", "--invert-loopctrl", "--invert-assignments", "--invert-bwassign", "--remove-self-assignments",
		// Without --invert-bitwise, which takes the & before an operand for the operator, and then does not compile.
		"--exclude-files", "/"}} // of other packages
	for _, name := range p.GoFiles {
		s, err := readSource(filepath.Join(p.Dir, name))
		if err != nil {
			return choice{}, err
		}
		path := filepath.ToSlash(filepath.Join(dir, name))
		lines := []lineRange{everyLine}
		if changed != nil {
			lines = changed[path]
		}
		if ast.IsGenerated(s.file) || !g.only.MatchString(path) || len(lines) == 0 {
			c.args = append(c.args, "--exclude-files", "^"+regexp.QuoteMeta(name)+"$")
			continue
		}
		c.sources[name] = s
		for _, r := range lines {
			c.profile += profileLine(name, r)
		}
	}
	return c, nil
}

// runTests runs the tests of the package in a directory. Gremlins copies a module, and nothing of what is around it, so a test that
// needs that fails with every mutant, and seems to catch it.
func runTests(ctx context.Context, dir string, env []string) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat(testArgs, []string{"."})...)
	cmd.Dir, cmd.Env = dir, env
	proc.Group(cmd)
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // programs whose tests were cut off by a time limit
	}
	if err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("%w\n%s", err, out))
	}
	return nil
}

// leaveOut takes mutants out for which there was no time. The go command says of them that they do not compile; which of those that do
// not compile they are does not matter.
func (o *outcome) leaveOut(late int) {
	o.notTried += late
	o.mutants = slices.DeleteFunc(o.mutants, func(m mutant) bool {
		if m.status != notViable || late == 0 {
			return false
		}
		late--
		return true
	})
}

// environment returns that of Gremlins and the tests. The go command on its PATH is this program, see goCommand.
func environment(ctx context.Context, scratch string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	goPath, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(scratch, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return nil, err
	}
	if err := os.Symlink(self, filepath.Join(bin, "go")); err != nil {
		return nil, err
	}
	temporary := filepath.Join(scratch, "tmp") // Gremlins leaves its copies of the code if it is interrupted
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return nil, err
	}
	env, err := environ.Isolated(filepath.Join(scratch, "home"), "KUBE_CACHE_MUTATION_DETECTOR")
	if err != nil {
		return nil, err
	}
	root, err := cluster.Root(ctx)
	if err != nil {
		return nil, err
	}
	settings, err := environ.GoCommand(ctx)
	if err != nil {
		return nil, err
	}
	// The copies that Gremlins makes are outside of the workspace.
	return append(append(env, settings...), "GOWORK=off", "TMPDIR="+temporary, realGo+"="+goPath, cluster.RootVariable+"="+root,
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH")), nil
}

// goPackage is a package as "go list -json" prints it.
type goPackage struct {
	Dir, ImportPath string
	GoFiles         []string
}

// listPackages returns the packages of a module, without those for tests.
func listPackages(ctx context.Context, module string) ([]goPackage, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=Dir,ImportPath,GoFiles", "./...")
	cmd.Dir, cmd.Env, cmd.Stderr = module, append(os.Environ(), "GOWORK=off"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", module, err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var p goPackage
		if err := decoder.Decode(&p); err != nil {
			return nil, err
		}
		if !strings.HasSuffix(p.ImportPath, "test") {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// readOutput reads the file that Gremlins writes. It writes none if there are no mutants.
func readOutput(path, dir string, sources map[string]source) ([]mutant, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var output struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Line, Column int
				Type, Status string
			}
		}
	}
	if err := json.Unmarshal(text, &output); err != nil {
		return nil, fmt.Errorf("read Gremlins' output: %w", err)
	}
	var all []mutant
	for _, file := range output.Files {
		for _, m := range file.Mutations {
			result := status(m.Status)
			if result == unchanged {
				continue
			}
			if !slices.Contains([]status{killed, timedOut, lived, notViable}, result) {
				return nil, fmt.Errorf("gremlins did not run the mutant at %s:%d:%d: %s", file.Name, m.Line, m.Column, m.Status)
			}
			function, line := sources[file.Name].at(m.Line, m.Column)
			all = append(all, mutant{key{filepath.ToSlash(filepath.Join(dir, file.Name)), function, m.Type, line}, m.Line, result})
		}
	}
	slices.SortStableFunc(all, func(a, b mutant) int {
		if a.file != b.file {
			return strings.Compare(a.file, b.file)
		}
		return a.number - b.number
	})
	return all, nil
}

// source is a parsed Go file.
type source struct {
	text  []byte
	set   *token.FileSet
	file  *ast.File
	lines []string
}

func readSource(path string) (source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return source{}, err
	}
	s := source{text: text, set: token.NewFileSet(), lines: strings.Split(string(text), "\n")}
	s.file, err = parser.ParseFile(s.set, path, text, parser.ParseComments)
	return s, err
}

// at returns the name of the function at a position, or "-" outside of functions, and the trimmed line with the token at
// that position in brackets. Lines and columns count from 1.
func (s source) at(line, column int) (function, marked string) {
	file := s.set.File(s.file.Pos())
	position := file.LineStart(line) + token.Pos(column-1)
	function = "-"
	for _, declaration := range s.file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Pos() <= position && position < f.End() {
			function = f.Name.Name
		}
	}
	var tokens scanner.Scanner
	rest := s.text[file.Offset(position):]
	set := token.NewFileSet()
	tokens.Init(set.AddFile("", -1, len(rest)), rest, nil, 0)
	_, operator, literal := tokens.Scan()
	if literal == "" {
		literal = operator.String()
	}
	text := s.lines[line-1]
	return function, strings.TrimSpace(text[:column-1] + "[" + literal + "]" + text[column-1+len(literal):])
}

// Package gobuild builds the Go programs of this repository and caches the binaries.
//
//   - A program is built when its sources, the Go version or the build settings have changed, and only then. A comment is not
//     part of the sources.
//   - A cached binary is found without running "go build", in milliseconds.
//   - Processes that need the same program at the same time build it once.
//   - A build that fails or is interrupted leaves nothing behind.
package gobuild

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/proc"
	"example.com/controllers/harness/testinput"
)

// Program describes a main package of this repository and how to build it.
type Program struct {
	// Name is the name of the binary, and of the program in messages.
	Name string
	// Dir is the directory of the program's module. Package is the main package, relative to Dir, such as "./cmd/x".
	Dir, Package string
	// Sources are the files and directories, relative to Dir, that the program is built from. A change of any other
	// file causes no new build.
	Sources []string
	// LDFlags are flags for the linker.
	LDFlags string
	// Lean is a file, relative to Dir, with a pattern of packages on each line, as in "k8s.io/kubernetes/...". They are
	// compiled without inlining and without debug information, which takes two thirds of the time. The go command compiles
	// such a package again for whoever compiles it as usual, and everything that imports it. "" for none.
	Lean string
	// Platform is an operating system and an architecture, as in "linux/arm64", to build for; "" for this machine's.
	Platform string
	// ExtraPackages are more main packages of the module, relative to Dir. Their binaries, each named after its
	// package's directory, are built into the directory of the program's.
	ExtraPackages []string

	workspace bool // the go command uses the workspace
}

// maxBuilds is how many builds of one program stay in the cache. It leaves room for a few clones and branches.
const maxBuilds = 3

// CacheDir returns the directory of the cache: WORKSHOP_CACHE, or by default a directory in the user's cache
// directory. It need not exist.
func CacheDir() (string, error) {
	if dir := os.Getenv("WORKSHOP_CACHE"); dir != "" {
		return dir, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a directory to cache builds in: %w; set WORKSHOP_CACHE to one", err)
	}
	return filepath.Join(base, "controllers-workshop"), nil
}

// Env returns the variables with which commands in an isolated environment (package environ) use the same cache, and
// the go command's, instead of building everything again in their own HOME.
func Env(ctx context.Context) ([]string, error) {
	dir, err := CacheDir()
	if err != nil {
		return nil, err
	}
	env, err := environ.GoCommand(ctx)
	return append(env, "WORKSHOP_CACHE="+dir), err
}

// ProgramsVariable is the name of an environment variable with a directory of programs that were built elsewhere, such as in
// an image. If it is set, nothing is built: each program's file has its name.
const ProgramsVariable = "WORKSHOP_PROGRAMS"

// Prebuilt returns the path of a program that was built elsewhere; "" if [ProgramsVariable] is not set.
func Prebuilt(name string) (string, error) {
	dir := os.Getenv(ProgramsVariable)
	if dir == "" {
		return "", nil
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s names a directory without the program %s: %w", ProgramsVariable, name, err)
	}
	return path, nil
}

// IsBuilt reports whether [Build] would find the program's binary, and build nothing.
func IsBuilt(ctx context.Context, p Program) (bool, error) {
	if path, err := Prebuilt(p.Name); path != "" || err != nil {
		return path != "", err
	}
	binary, err := p.cached(ctx)
	return err == nil && exists(binary), err
}

// cached returns the path that the program's binary has in the cache once it is built.
func (p Program) cached(ctx context.Context) (string, error) {
	environment, err := p.goEnvironment(ctx)
	if err != nil {
		return "", err
	}
	key, err := p.cacheKey(environment)
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, p.Name, key, p.Name), nil
}

// Build returns the path of the program's binary, which it builds if it is not in the cache. It writes what it is
// doing to progress, and nothing if the binary is in the cache. If another process is building the program already,
// Build waits for it.
func Build(ctx context.Context, p Program, progress io.Writer) (string, error) {
	if path, err := Prebuilt(p.Name); path != "" || err != nil {
		return path, err
	}
	binary, err := p.cached(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(binary)
	programs := filepath.Dir(dir)
	if exists(binary) {
		markUsed(dir)
		return binary, nil
	}

	if err := os.MkdirAll(programs, 0o755); err != nil {
		return "", fmt.Errorf("cache the build of %s: %w; set WORKSHOP_CACHE to a writable directory", p.Name, err)
	}
	lock := flock.New(filepath.Join(programs, "lock"))
	if locked, err := lock.TryLock(); err != nil {
		return "", fmt.Errorf("lock %s: %w", programs, err)
	} else if !locked {
		fmt.Fprintf(progress, "%s: waiting for another process that is building it\n", p.Name)
		if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
			return "", fmt.Errorf("wait for another process that is building %s: %w", p.Name, err)
		}
	}
	defer lock.Unlock()
	if exists(binary) {
		return binary, nil
	}
	partial := dir + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.Mkdir(partial, 0o755)); err != nil {
		return "", fmt.Errorf("cache the build of %s: %w", p.Name, err)
	}
	defer os.RemoveAll(partial)
	if err := p.compile(ctx, partial, progress); err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(partial, dir)); err != nil { // an earlier build may have been removed in part
		return "", fmt.Errorf("cache the build of %s: %w", p.Name, err)
	}
	return binary, prune(programs)
}

// buildVCS is a flag in GOFLAGS that has no effect here: no program is stamped with its revision.
var buildVCS = regexp.MustCompile(`[ ]?-buildvcs(=\w+)?`)

// goEnvironment returns the go command's settings that affect a build. It is the first to run the go command, so it
// reports a Go that is missing or too old.
func (p Program) goEnvironment(ctx context.Context) (string, error) {
	cmd := p.goCommand(ctx, "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		return buildVCS.ReplaceAllLiteralString(string(out), ""), nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("there is no go command on the PATH; install Go 1.26 or newer from https://go.dev/dl")
	}
	return "", fmt.Errorf("go env in %s: %w\n%s", p.Dir, err, strings.TrimSpace(stderr.String()))
}

// goCommand returns a go command that ignores the workspace, unless told otherwise, and needs no C compiler.
func (p Program) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if !p.workspace {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	if goos, goarch, ok := strings.Cut(p.Platform, "/"); ok {
		cmd.Env = append(cmd.Env, "GOOS="+goos, "GOARCH="+goarch)
	}
	proc.Group(cmd)
	return cmd
}

// cacheKey returns a hash of everything that goes into the build.
func (p Program) cacheKey(environment string) (string, error) {
	hash := sha256.New()
	flags, err := p.buildFlags()
	if err != nil {
		return "", err
	}
	fmt.Fprintln(hash, environment, p.Package, flags, p.ExtraPackages)
	for _, source := range p.Sources {
		root := filepath.Join(p.Dir, source)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".md") {
				return err
			}
			// An editor's or a file manager's, or what npm has downloaded for "make page".
			if strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" {
				if entry.IsDir() && path != root {
					return filepath.SkipDir
				}
				return nil
			}
			testinput.DeclareOnly(path) // a test that runs the program depends on its sources
			if entry.IsDir() {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(p.Dir, path)
			fmt.Fprintf(hash, "%s %x\n", name, sha256.Sum256(withoutComments(name, text)))
			return err
		})
		if err != nil {
			return "", fmt.Errorf("read the sources of %s: %w", p.Name, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// buildFlags returns the flags of the go command on which the compiled packages depend.
func (p Program) buildFlags() ([]string, error) {
	flags := []string{"-ldflags", p.LDFlags}
	if p.Lean == "" {
		return flags, nil
	}
	path := filepath.Join(p.Dir, p.Lean)
	testinput.DeclareOnly(path)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read which packages of %s are compiled without inlining: %w", p.Name, err)
	}
	for _, pattern := range strings.Fields(string(text)) {
		flags = append(flags, "-gcflags="+pattern+"=-dwarf=false -l")
	}
	return flags, nil
}

// packages returns all main packages of the build.
func (p Program) packages() []string { return append([]string{p.Package}, p.ExtraPackages...) }

// compile builds the binaries of all packages into dir.
func (p Program) compile(ctx context.Context, dir string, progress io.Writer) error {
	line := newProgressLine(progress, p.Name)
	defer line.close()
	flags, err := p.buildFlags()
	if err != nil {
		return err
	}
	stale, err := p.stalePackages(ctx, line, flags)
	if err != nil {
		return err
	}
	line.total = len(stale)
	// With several packages, go build needs a directory, and names each binary after its package.
	out := dir + string(filepath.Separator)
	if len(p.ExtraPackages) == 0 {
		out += p.Name
	}
	cmd := p.goCommand(ctx, slices.Concat([]string{"build", "-v", "-buildvcs=false", "-o", out}, flags, p.packages())...)
	cmd.Env = append(cmd.Env, "GOTMPDIR="+dir) // dir is removed even if the build is interrupted
	failure, err := run(ctx, cmd, func(text string) {
		if stale[text] {
			line.compiled++
		}
		line.show(text)
	})
	if err != nil {
		return p.buildError(ctx, failure, err)
	}
	line.done()
	return nil
}

// stalePackages returns the import paths of the packages that a build has to compile. It downloads missing modules.
func (p Program) stalePackages(ctx context.Context, line *progressLine, flags []string) (map[string]bool, error) {
	args := []string{"-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}
	paths, err := p.list(ctx, line, slices.Concat(args, flags, p.packages())...)
	if err != nil {
		return nil, err
	}
	stale := map[string]bool{}
	for _, path := range paths {
		stale[path] = true
	}
	return stale, nil
}

// run runs cmd and calls each with every line of its standard error as it is written. failure is the last of those
// lines that explain a failure: neither names of packages nor downloads.
func run(ctx context.Context, cmd *exec.Cmd, each func(line string)) (failure string, err error) {
	reader, writer := io.Pipe()
	cmd.Stderr = writer
	scanned := make(chan []string)
	go func() {
		var lines []string
		scanner := bufio.NewScanner(reader)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			each(scanner.Text())
			lines = append(lines, scanner.Text())
		}
		scanned <- lines
	}()
	err = cmd.Run()
	writer.Close()
	lines := <-scanned
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return !strings.Contains(line, " ") || strings.HasPrefix(line, "go: downloading ")
	})
	return strings.Join(lines[max(0, len(lines)-20):], "\n"), err
}

// buildError wraps err with the program's name and the go command's output. After a cancellation it is the cause of
// that instead.
func (p Program) buildError(ctx context.Context, output string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("build %s in %s: %w\n%s", p.Name, p.Dir, err, output)
}

// prune removes all builds in the directory programs except the maxBuilds that were used last.
func prune(programs string) error {
	entries, err := os.ReadDir(programs)
	if err != nil {
		return err
	}
	type build struct {
		path string
		used time.Time
	}
	var builds []build
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && entry.IsDir() && !strings.HasSuffix(entry.Name(), ".partial") {
			builds = append(builds, build{filepath.Join(programs, entry.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(builds, func(a, b build) int { return b.used.Compare(a.used) })
	var errs []error
	for _, old := range builds[min(maxBuilds, len(builds)):] {
		errs = append(errs, os.RemoveAll(old.path))
	}
	return errors.Join(errs...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// markUsed tells prune that a build has just been used. Errors do not matter: a read-only cache is not pruned either.
func markUsed(dir string) {
	now := time.Now()
	_ = os.Chtimes(dir, now, now)
}

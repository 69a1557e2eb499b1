// Package gobuild builds Go programs, says how far it is, and keeps what it has built: a program
// whose sources have not changed is not built again, and not even looked at by the go command.
package gobuild

import (
	"bufio"
	"bytes"
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
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/proc"
	"example.com/controllers/harness/testinput"
)

// Program is a main package of a module of this repository.
type Program struct {
	// Name is what the binary is called, and what progress lines call it.
	Name string
	// Dir is the directory of the program's module; Package is relative to it ("." or "./cmd/x").
	Dir, Package string
	// Sources are the directories, relative to Dir, whose files the program is built from.
	Sources []string
	// LDFlags are flags of the linker.
	LDFlags string
	// Beside are further main packages of the module, relative to Dir, whose binaries are built with it and lie beside
	// it. Each is named after its directory.
	Beside []string
}

// kept is how many builds of one program stay in the cache: those of a few clones and branches.
const kept = 3

// CacheDir returns the directory that builds are kept in: WORKSHOP_CACHE, or a place in the user's
// cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("WORKSHOP_CACHE"); dir != "" {
		return dir, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a directory for builds: %w; set WORKSHOP_CACHE to one", err)
	}
	return filepath.Join(base, "controllers-workshop"), nil
}

// Env returns what the commands of an isolated environment (package environ) need to find our builds, and those of the
// go command, instead of making them again below their own HOME.
func Env(ctx context.Context) ([]string, error) {
	dir, err := CacheDir()
	if err != nil {
		return nil, err
	}
	env, err := environ.GoCommand(ctx)
	return append(env, "WORKSHOP_CACHE="+dir), err
}

// Build returns the path of the program's binary and builds it first if it has to. What it is doing
// goes to progress; nothing is written there when there is nothing to do. Several processes may ask
// for the same program at once: one builds, the others wait.
func Build(ctx context.Context, p Program, progress io.Writer) (string, error) {
	environment, err := goEnvironment(ctx, p.Dir)
	if err != nil {
		return "", err
	}
	key, err := p.key(environment)
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	programs := filepath.Join(cache, p.Name)
	dir := filepath.Join(programs, key)
	binary := filepath.Join(dir, p.Name)
	if isThere(binary) {
		touch(dir)
		return binary, nil
	}

	if err := os.MkdirAll(programs, 0o755); err != nil {
		return "", fmt.Errorf("keep the build of %s: %w; set WORKSHOP_CACHE to a directory that can be written", p.Name, err)
	}
	lock := flock.New(filepath.Join(programs, "lock"))
	if locked, err := lock.TryLock(); err != nil {
		return "", fmt.Errorf("lock %s: %w", programs, err)
	} else if !locked {
		fmt.Fprintf(progress, "%s: waiting for another build of it\n", p.Name)
		if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
			return "", fmt.Errorf("wait for another build of %s: %w", p.Name, err)
		}
	}
	defer lock.Unlock()
	if isThere(binary) {
		return binary, nil
	}
	partial := dir + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.Mkdir(partial, 0o755)); err != nil {
		return "", fmt.Errorf("keep the build of %s: %w", p.Name, err)
	}
	defer os.RemoveAll(partial)
	if err := p.compile(ctx, partial, progress); err != nil {
		return "", err
	}
	if err := os.Rename(partial, dir); err != nil {
		return "", fmt.Errorf("keep the build of %s: %w", p.Name, err)
	}
	return binary, prune(programs)
}

// goEnvironment returns what of the go command's settings changes a build, and the first error that
// a missing or too old Go would give.
func goEnvironment(ctx context.Context, dir string) (string, error) {
	cmd := goCommand(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("there is no go command on the PATH; install Go 1.26 or newer from https://go.dev/dl")
	}
	return "", fmt.Errorf("go env in %s: %w\n%s", dir, err, strings.TrimSpace(stderr.String()))
}

// goCommand makes a go command that sees the program's module alone, and needs no C compiler.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	proc.Group(cmd)
	return cmd
}

// key names a build: a hash of everything that goes into it.
func (p Program) key(environment string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, environment, p.Package, p.LDFlags, p.Beside)
	for _, source := range p.Sources {
		root := filepath.Join(p.Dir, source)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".md") {
				return err
			}
			testinput.DeclareOnly(path) // a test that runs the program depends on it
			if entry.IsDir() {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(p.Dir, path)
			fmt.Fprintf(hash, "%s %x\n", name, sha256.Sum256(text))
			return err
		})
		if err != nil {
			return "", fmt.Errorf("read the sources of %s: %w", p.Name, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// packages are the main packages that a build makes binaries of.
func (p Program) packages() []string { return append([]string{p.Package}, p.Beside...) }

// compile builds the program, and what lies beside it, into the directory dir.
func (p Program) compile(ctx context.Context, dir string, progress io.Writer) error {
	line := newProgressLine(progress, p.Name)
	defer line.close()
	stale, err := p.stalePackages(ctx, line)
	if err != nil {
		return err
	}
	line.total = len(stale)
	out := dir + string(filepath.Separator) // a directory, for several binaries
	if len(p.Beside) == 0 {
		out += p.Name
	}
	cmd := goCommand(ctx, p.Dir, append([]string{"build", "-v", "-o", out, "-ldflags", p.LDFlags}, p.packages()...)...)
	cmd.Env = append(cmd.Env, "GOTMPDIR="+dir) // which is removed if the build is interrupted
	failure, err := run(ctx, cmd, func(text string) {
		if stale[text] {
			line.count++
		}
		line.show(text)
	})
	if err != nil {
		return p.failed(ctx, failure, err)
	}
	line.done()
	return nil
}

// stalePackages returns the packages that a build would have to compile. It downloads the modules
// that are missing.
func (p Program) stalePackages(ctx context.Context, line *progressLine) (map[string]bool, error) {
	cmd := goCommand(ctx, p.Dir, append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, p.packages()...)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	downloads := 0
	failure, err := run(ctx, cmd, func(text string) {
		if strings.HasPrefix(text, "go: downloading ") {
			downloads++
			line.say(fmt.Sprintf("downloading modules (%d)", downloads))
		}
	})
	if err != nil {
		return nil, p.failed(ctx, failure, err)
	}
	stale := map[string]bool{}
	for name := range strings.FieldsSeq(out.String()) {
		stale[name] = true
	}
	return stale, nil
}

// run runs cmd, hands each line of its standard error to each, and returns those that belong to a
// failure.
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
	// The names of packages that compiled, and modules that came, are no news.
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return !strings.Contains(line, " ") || strings.HasPrefix(line, "go: downloading ")
	})
	return strings.Join(lines[max(0, len(lines)-20):], "\n"), err
}

func (p Program) failed(ctx context.Context, output string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("build %s in %s: %w\n%s", p.Name, p.Dir, err, output)
}

// prune removes the builds that have not been used for longest, but for the few that are kept.
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
	for _, old := range builds[min(kept, len(builds)):] {
		errs = append(errs, os.RemoveAll(old.path))
	}
	return errors.Join(errs...)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// touch marks a build as used, for prune. That it may fail on a read-only cache is no harm.
func touch(dir string) {
	now := time.Now()
	_ = os.Chtimes(dir, now, now)
}

package offline

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"example.com/controllers/harness/proc"
)

// Dir is the directory, in the repository of an unpacked bundle, with all that comes from elsewhere. The Makefile includes
// the settings in it.
const Dir = ".bundle"

// settings let make use what is in Dir, wherever it was unpacked, and nothing that is installed or configured on the
// machine. The go command finds compiled packages of another directory only with -trimpath. Once a day, it deletes what it has
// not used for five days, which may be everything: with trim.txt, it believes that it has just done so.
const settings = `bundle := $(CURDIR)/` + Dir + `
unexport GOROOT
export PATH := $(bundle)/go/bin:$(PATH)
export GOENV := off
export GOTOOLCHAIN := local
export GOEXPERIMENT :=
export GOFLAGS := ` + goFlags + `
export GOPROXY := file://$(subst $() ,%20,$(bundle)/modules)
export GOSUMDB := off
export GOMODCACHE := $(bundle)/unpacked
export GOCACHE := $(bundle)/build
trimmed := $(shell date +%s > "$(bundle)/build/trim.txt")
export WORKSHOP_CACHE := $(bundle)/programs
export ` + Variable + ` := $(bundle)
`

// Variable is the environment variable with the path of Dir. It is set by the make of an unpacked bundle.
const Variable = "WORKSHOP_BUNDLE"

// Environment returns the variables that make sets in an unpacked bundle, for commands that are started without make. It is
// empty elsewhere. The go command of the bundle is in GoDir. With another CGO_ENABLED than make's, the go command would not
// find the compiled packages.
func Environment() (variables []string) {
	if os.Getenv(Variable) == "" {
		return nil
	}
	for _, name := range []string{"GOENV", "GOTOOLCHAIN", "GOEXPERIMENT", "GOFLAGS", "GOPROXY", "GOSUMDB", "GOMODCACHE", "GOCACHE", "CGO_ENABLED", "WORKSHOP_CACHE", Variable} {
		variables = append(variables, name+"="+os.Getenv(name))
	}
	return variables
}

// GoDir is the directory with the go command of an unpacked bundle.
func GoDir() string { return filepath.Join(os.Getenv(Variable), "go", "bin") }

const goFlags = "-trimpath -modcacherw"

// Part names what [PrefetchPart] prefetches.
type Part string

// The compiled packages of the control plane are left out of a bundle, which has the program. So programs and packages are
// built with different caches.
const (
	Programs Part = "programs"
	Packages Part = "packages"
)

// PrefetchPart is half of [Prefetch].
func PrefetchPart(ctx context.Context, root string, part Part, progress io.Writer) error {
	switch part {
	case Programs:
		return prefetchPrograms(ctx, root, progress)
	case Packages:
		return prefetchPackages(ctx, root, progress)
	}
	return fmt.Errorf("there is no part %q to prefetch; there are %s and %s", part, Programs, Packages)
}

// Options say what [Bundle] does.
type Options struct {
	// Root is the repository's directory. What is bundled is its last commit.
	Root string
	// Platform is an operating system and a processor architecture, as in "linux/amd64".
	Platform string
	// File is the archive that is written.
	File string
	// Prefetch is a command that calls [PrefetchPart] with its last argument, in the directory in which it runs.
	Prefetch []string
	Progress io.Writer
}

// Bundle writes an archive (tar, gzip) for one platform. If it fails, or ctx is cancelled, it leaves no file.
func Bundle(ctx context.Context, o Options) (err error) {
	platforms, err := output(ctx, exec.CommandContext(ctx, "go", "tool", "dist", "list"))
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(platforms), o.Platform) {
		return fmt.Errorf("%q is not a platform of Go's; linux/amd64 and darwin/arm64 are two that are", o.Platform)
	}
	goos, goarch, _ := strings.Cut(o.Platform, "/")
	// It is beside the archive because that is where there has to be space.
	stage, err := os.MkdirTemp(filepath.Dir(o.File), ".bundle-")
	if err != nil {
		return fmt.Errorf("create a directory for the bundle: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()

	clone := filepath.Join(stage, "workshop")
	if err := cloneCommit(ctx, o.Root, clone, o.Progress); err != nil {
		return err
	}
	own := filepath.Join(clone, Dir)
	if err := os.Mkdir(own, 0o755); err != nil {
		return err
	}
	host, err := hostSettings(ctx, o.Root)
	if err != nil {
		return err
	}
	modules := filepath.Join(stage, "modules")
	env := append(os.Environ(), "GOENV=off", "GOTOOLCHAIN=local", "GOEXPERIMENT=", "GOFLAGS="+goFlags, "GOOS="+goos, "GOARCH="+goarch,
		"GOMODCACHE="+modules, "GOSUMDB=off", // go.sum has the checksums of all modules
		"GOPROXY=file://"+filepath.ToSlash(filepath.Join(host.GOMODCACHE, "cache", "download"))+","+host.GOPROXY,
		"WORKSHOP_CACHE="+filepath.Join(own, "programs"))
	for _, step := range []struct {
		part  Part
		cache string
	}{{Programs, host.GOCACHE}, {Packages, filepath.Join(own, "build")}} {
		cmd := exec.CommandContext(ctx, o.Prefetch[0], append(o.Prefetch[1:], string(step.part))...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = clone, o.Progress, o.Progress
		cmd.Env = append(env, "GOCACHE="+step.cache)
		if err := runCommand(ctx, cmd); err != nil {
			return fmt.Errorf("compile the %s for %s: %w", step.part, o.Platform, err)
		}
	}
	fmt.Fprintf(o.Progress, "Go %s for %s\n", strings.TrimPrefix(host.GOVERSION, "go"), o.Platform)
	if err := copyGo(ctx, host, goos, goarch, filepath.Join(own, "go")); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(modules, "cache", "download"), filepath.Join(own, "modules")); err != nil {
		return err
	}
	if err := os.RemoveAll(modules); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(own, "settings.mk"), []byte(settings), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(o.Progress, "writing %s\n", o.File)
	return archive(ctx, stage, o.File)
}

// cloneCommit clones the last commit of a repository.
func cloneCommit(ctx context.Context, root, dir string, progress io.Writer) error {
	status := exec.CommandContext(ctx, "git", "status", "--porcelain")
	status.Dir = root
	changed, err := output(ctx, status)
	if err != nil {
		return fmt.Errorf("a bundle is made of the last commit, so %s must be a git repository: %w", root, err)
	}
	if changed != "" {
		fmt.Fprintf(progress, "These changes are not committed, so they will not be in the bundle:\n%s\n", changed)
	}
	clone := exec.CommandContext(ctx, "git", "clone", "--quiet", "--depth=1", "file://"+root, dir)
	_, err = output(ctx, clone)
	return err
}

// goSettings are settings of the go command.
type goSettings struct{ GOVERSION, GOPROXY, GOCACHE, GOMODCACHE string }

func hostSettings(ctx context.Context, root string) (goSettings, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "-json", "GOVERSION", "GOPROXY", "GOCACHE", "GOMODCACHE")
	cmd.Dir = root
	var s goSettings
	text, err := output(ctx, cmd)
	if err == nil {
		err = json.Unmarshal([]byte(text), &s)
	}
	return s, err
}

// copyGo puts the Go distribution of our own version for a platform into dir. The Go project publishes them as modules.
func copyGo(ctx context.Context, host goSettings, goos, goarch, dir string) error {
	module := fmt.Sprintf("golang.org/toolchain@v0.0.1-%s.%s-%s", host.GOVERSION, goos, goarch)
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = os.TempDir() // outside of any module
	cmd.Env = append(os.Environ(), "GOWORK=off")
	text, err := output(ctx, cmd)
	var downloaded struct{ Dir, Error string }
	if parsed := json.Unmarshal([]byte(text), &downloaded); parsed == nil && downloaded.Error != "" {
		err = errors.New(downloaded.Error)
	}
	if err != nil {
		return fmt.Errorf("download %s: %w; Go publishes its releases only", module, err)
	}
	if err := os.CopyFS(dir, os.DirFS(downloaded.Dir)); err != nil {
		return fmt.Errorf("copy %s: %w", module, err)
	}
	// Files of modules are neither executable nor writable.
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(dir, path)
		if entry.IsDir() || strings.HasPrefix(relative, "bin"+string(filepath.Separator)) || strings.HasPrefix(relative, filepath.Join("pkg", "tool")) {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}

// archive packs all that is in dir into a file.
func archive(ctx context.Context, dir, file string) (err error) {
	partial := file + ".partial"
	f, err := os.Create(partial)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(partial))
		}
	}()
	compressed := gzip.NewWriter(f)
	packed := tar.NewWriter(compressed)
	err = errors.Join(pack(ctx, packed, dir), packed.Close(), compressed.Close(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(partial, file)
}

// pack adds all that is in dir. It belongs to nobody: root, who may unpack it in a container, would otherwise get files of the
// user who made the bundle, and git and the go command refuse a repository that belongs to somebody else.
func pack(ctx context.Context, packed *tar.Writer, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var link string
		if entry.Type() == fs.ModeSymlink {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if header.Name = filepath.ToSlash(relative); entry.IsDir() {
			header.Name += "/"
		}
		header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
		if err := packed.WriteHeader(header); err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(packed, file)
		return err
	})
}

// output runs a command and returns what it prints. Its standard error becomes part of the error.
func output(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	err := runCommand(ctx, cmd)
	return strings.TrimSpace(stdout.String()), err
}

func runCommand(ctx context.Context, cmd *exec.Cmd) error {
	var stderr bytes.Buffer
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	}
	proc.Group(cmd)
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// HostPlatform returns the platform on which this program runs.
func HostPlatform() string { return runtime.GOOS + "/" + runtime.GOARCH }

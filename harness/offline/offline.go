// Package offline prepares machines that will have no network: a participant's laptop, before the workshop, or one that is
// given everything on a USB stick.
//
//   - [Prefetch] downloads and compiles all that the lessons and exercises need, and proves it by a run without network.
//   - [Bundle] writes an archive with the repository, Go, all modules and all compiled programs and packages for one
//     platform. Unpacked anywhere on such a machine, it needs make, git and bash, and no network.
package offline

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/proc"
)

// exerciseTag is the build tag of the exercises' checks.
const exerciseTag = "exercise"

// Prefetch downloads and compiles everything that the lessons and exercises of the repository at root need.
func Prefetch(ctx context.Context, root string, progress io.Writer) error {
	if err := prefetchPrograms(ctx, root, progress); err != nil {
		return err
	}
	return prefetchPackages(ctx, root, progress)
}

// prefetchPrograms builds the workshop's command, the control plane and kubectl.
func prefetchPrograms(ctx context.Context, root string, progress io.Writer) error {
	for _, p := range []gobuild.Program{gobuild.Workshop(filepath.Join(root, "harness")), cluster.Program(root)} {
		if _, err := gobuild.Build(ctx, p, progress); err != nil {
			return err
		}
	}
	return nil
}

// prefetchPackages compiles the packages of all modules in the workspace but the control plane's, which is a program.
func prefetchPackages(ctx context.Context, root string, progress io.Writer) error {
	modules, err := modules(root)
	if err != nil {
		return err
	}
	heavy := cluster.Program(root).Dir
	for _, dir := range modules {
		if path := filepath.Join(root, dir); path != heavy {
			if err := gobuild.Packages(ctx, path, dir, exerciseTag, progress); err != nil {
				return err
			}
		}
	}
	return loadWorkspace(ctx, root, modules, progress)
}

// loadWorkspace downloads what the go command reads in the workspace and not in one module alone: commands on the pages run
// there. These are go.mod files of versions that only some of the modules require, and that the build does not use.
func loadWorkspace(ctx context.Context, root string, modules []string, progress io.Writer) error {
	args := []string{"list", "-deps", "-test", "-tags", exerciseTag, "-f", `{{""}}`}
	for _, dir := range modules {
		args = append(args, "./"+filepath.ToSlash(dir)+"/...")
	}
	fmt.Fprintln(progress, "loading the workspace")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"), "CGO_ENABLED=0")
	_, err := output(ctx, cmd)
	return err
}

// modules returns the directories of the workspace's modules, relative to root.
func modules(root string) ([]string, error) {
	path := filepath.Join(root, "go.work")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(path, text, nil)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, use := range work.Use {
		dirs = append(dirs, filepath.Clean(use.Path))
	}
	return dirs, nil
}

// Prove runs a command in the repository at root without network: the go command may not download modules, and a program
// that uses a proxy finds none. Connections within the machine work.
func Prove(ctx context.Context, root string, out io.Writer, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, out, out
	cmd.Env = append(os.Environ(), noNetwork...)
	proc.Group(cmd)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("without network, %s: %w", strings.Join(append([]string{filepath.Base(command[0])}, command[1:]...), " "), err)
	}
	return nil
}

// noNetwork lets the go command download nothing. It may switch to another Go that has been downloaded already. No server listens on port 9 of the local host.
var noNetwork = []string{"GOPROXY=off", "GOVCS=*:off",
	"HTTP_PROXY=http://127.0.0.1:9", "HTTPS_PROXY=http://127.0.0.1:9", "NO_PROXY=127.0.0.1,::1,localhost"}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"example.com/controllers/harness/gobuild"
)

// KubernetesVersion is the version of the embedded control plane and its kubectl.
const KubernetesVersion = "v1.37.1"

// ProgramVariable is the name of an environment variable with the path of a control plane's program to use
// instead of building one. kubectl must be in the same directory.
const ProgramVariable = "WORKSHOP_CONTROLPLANE"

// RootVariable is the name of an environment variable with the directory of this repository, for commands that run
// outside of it.
const RootVariable = "WORKSHOP_ROOT"

// programPath returns the path of the control plane's program; kubectl is in the same directory. It builds them
// if their sources have changed, which takes minutes the first time, and reports that to progress, which may
// be nil.
func programPath(ctx context.Context, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	if path := os.Getenv(ProgramVariable); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s is not the path of a program: %w", ProgramVariable, err)
		}
		return path, nil
	}
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	return gobuild.Build(ctx, Program(root), progress)
}

// IsBuilt reports whether [Start] finds the control plane's program, and need not build it first.
func IsBuilt(ctx context.Context) (bool, error) {
	if os.Getenv(ProgramVariable) != "" {
		return true, nil
	}
	root, err := Root(ctx)
	if err != nil {
		return false, err
	}
	return gobuild.IsBuilt(ctx, Program(root))
}

// Program describes how to build the control plane's program, and kubectl, in the repository at root.
func Program(root string) gobuild.Program {
	major, minor, _ := strings.Cut(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	flags := []string{"-s", "-w"}
	for _, variable := range []string{"k8s.io/component-base/version.", "k8s.io/client-go/pkg/version."} {
		flags = append(flags,
			"-X "+variable+"gitVersion="+KubernetesVersion,
			"-X "+variable+"gitMajor="+major,
			"-X "+variable+"gitMinor="+minor,
			"-X "+variable+"gitTreeState=clean",
		)
	}
	return gobuild.Program{
		Name:    "controlplane",
		Dir:     filepath.Join(root, "harness", "controlplane"),
		Package: ".",
		Sources: []string{".", "../machine"},
		LDFlags: strings.Join(flags, " "),
		// Those that no lesson imports, so that hardly anybody compiles them as usual. The Makefile reads the file too.
		Lean: "lean.txt",
		// kubectl is a binary of its own because it starts twice as fast as one with the control plane in it.
		ExtraPackages: []string{"./kubectl"},
	}
}

// Root returns the root directory of this repository: the closest ancestor of the working directory that contains
// the control plane, or else the one that [RootVariable] names, or else the repository that the module of the working directory uses the harness from.
func Root(ctx context.Context) (string, error) {
	const marker = "harness/controlplane/go.mod"
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, marker)); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if dir := os.Getenv(RootVariable); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, marker)); err != nil {
			return "", fmt.Errorf("%s does not name the workshop's repository: %w", RootVariable, err)
		}
		return dir, nil
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "example.com/controllers/harness").Output()
	if err == nil {
		root := filepath.Dir(strings.TrimSpace(string(out)))
		if _, err := os.Stat(filepath.Join(root, marker)); err == nil {
			return root, nil
		}
	}
	return "", errors.New("the source of the control plane is not in this directory or above it; run this inside of the workshop's repository, " +
		"or set " + RootVariable + " to its directory, as \"make env\" does, or " + ProgramVariable + " to the path of a built control plane")
}

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

// ProgramVariable names the environment variable that may hold the path of a control plane's
// program, to be used instead of building one.
const ProgramVariable = "WORKSHOP_CONTROLPLANE"

// program returns the path of the control plane's program. Its directory holds kubectl as well. It
// is built if it is not there, which takes minutes the first time; progress, if it is not nil, is told
// how far that is.
func program(ctx context.Context, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	if path := os.Getenv(ProgramVariable); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s names no program: %w", ProgramVariable, err)
		}
		return path, nil
	}
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	return gobuild.Build(ctx, Program(root), progress)
}

// Program describes the control plane's program in the repository at root.
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
		Beside:  []string{"./kubectl"}, // not the same binary: it starts in half the time
	}
}

// Root returns the directory of this repository: the one above the working directory that has the
// control plane in it, or else the one that the working directory's module takes the harness from.
func Root(ctx context.Context) (string, error) {
	const sign = "harness/controlplane/go.mod"
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, sign)); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "example.com/controllers/harness").Output()
	if err == nil {
		root := filepath.Dir(strings.TrimSpace(string(out)))
		if _, err := os.Stat(filepath.Join(root, sign)); err == nil {
			return root, nil
		}
	}
	return "", errors.New("the source of the control plane is not found; run this inside the workshop's repository, " +
		"or set " + ProgramVariable + " to a built control plane")
}

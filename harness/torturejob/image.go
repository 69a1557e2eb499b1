package torturejob

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/image"
	"example.com/controllers/harness/torture"
)

// Contents say what is in the image of a Job's Pods.
type Contents struct {
	// Name is the image's name and tag.
	Name string
	// Arch is the architecture of the cluster's nodes: "amd64" or "arm64".
	Arch string
	// Root is the workshop's repository.
	Root     string
	Scenario *torture.Scenario
	Plans    []torture.Plan
	// Command is the controller's; empty for the programs that the scenario names.
	Command  []string
	Progress io.Writer
}

// Image builds the image, and returns the arguments with which its workers run; see [Options].
func Image(ctx context.Context, c Contents) (built *image.Image, arguments []string, err error) {
	programs := []gobuild.Program{gobuild.Workshop(filepath.Join(c.Root, "harness")), cluster.Program(c.Root)}
	if len(c.Command) == 0 {
		programs = append(programs, c.Scenario.Sources()...)
	}
	var files []image.File
	inImage := map[string]bool{}
	add := func(binary, name string) error {
		contents, err := readStatic(binary)
		if err != nil {
			return err
		}
		file := path.Join(programsPath, name)
		if !inImage[file] { // several programs of a scenario may be the same
			files = append(files, image.File{Path: file, Contents: contents, Mode: 0o755})
		}
		inImage[file] = true
		return nil
	}
	for _, p := range programs {
		p.Platform = "linux/" + c.Arch
		binary, err := gobuild.Build(ctx, p, c.Progress)
		if err != nil {
			return nil, nil, err
		}
		if err := add(binary, p.Name); err != nil {
			return nil, nil, err
		}
		for _, extra := range p.ExtraPackages {
			name := path.Base(extra)
			if err := add(filepath.Join(filepath.Dir(binary), name), name); err != nil {
				return nil, nil, err
			}
		}
	}
	scenario, tree, err := c.tree()
	if err != nil {
		return nil, nil, err
	}
	var plans bytes.Buffer
	if err := torture.WritePlans(&plans, c.Plans); err != nil {
		return nil, nil, err
	}
	files = append(append(files, tree...), image.File{Path: plansPath, Contents: plans.Bytes(), Mode: 0o644})
	arguments = []string{"--scenario", scenario, "--plans", plansPath}
	if len(c.Command) > 0 {
		name := filepath.Base(c.Command[0])
		if inImage[path.Join(programsPath, name)] {
			return nil, nil, fmt.Errorf("the controller's program cannot be called %s, like one of the workshop's own", name)
		}
		if err := add(c.Command[0], name); err != nil {
			return nil, nil, err
		}
		arguments = append(append(arguments, "--", path.Join(programsPath, name)), c.Command[1:]...)
	}
	built, err = image.Build(ctx, image.Options{Name: c.Name, Files: files, Entrypoint: path.Join(programsPath, programs[0].Name), Arch: c.Arch})
	return built, arguments, err
}

// readStatic reads a program for Linux that needs no libraries; there are none in the image.
func readStatic(binary string) ([]byte, error) {
	contents, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	program, err := elf.NewFile(bytes.NewReader(contents))
	if err != nil {
		return nil, fmt.Errorf("%s cannot run in the cluster's Pods: it is not a program for Linux", binary)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s cannot run in the cluster's Pods: it needs shared libraries; build it with CGO_ENABLED=0", binary)
		}
	}
	return contents, nil
}

// tree returns the scenario's files, at the same places relative to each other, and the path of the scenario in the image.
func (c Contents) tree() (scenario string, files []image.File, err error) {
	paths := c.Scenario.Files()
	for i := range paths {
		if paths[i], err = filepath.Abs(paths[i]); err != nil {
			return "", nil, err
		}
	}
	root := filepath.Dir(paths[0])
	for _, p := range paths {
		for p != root && !strings.HasPrefix(p, strings.TrimSuffix(root, string(filepath.Separator))+string(filepath.Separator)) {
			root = filepath.Dir(root)
		}
	}
	place := func(file string) (string, error) {
		relative, err := filepath.Rel(root, file)
		return path.Join(scenarioPath, filepath.ToSlash(relative)), err
	}
	for _, p := range paths {
		err := filepath.WalkDir(p, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			contents, readErr := os.ReadFile(file)
			at, placeErr := place(file)
			files = append(files, image.File{Path: at, Contents: append([]byte{}, contents...), Mode: 0o644})
			return errors.Join(readErr, placeErr)
		})
		if err != nil {
			return "", nil, fmt.Errorf("the scenario's files: %w", err)
		}
	}
	scenario, err = place(paths[0])
	return scenario, files, err
}

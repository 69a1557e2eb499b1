// Package image makes OCI images of Go programs, without a Dockerfile, a base image or a container engine.
//
//   - An image has static binaries, CA certificates, a directory for temporary files, and a list of what the binaries were
//     built from (an SBOM). It has no shell and no libraries.
//   - It runs as an unprivileged user.
//   - The same sources and the same version of Go result in the same bytes, on every computer and in every directory.
package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"example.com/controllers/harness/proc"
)

// UserID is the ID of the user and the group that an image's program runs as, unless its Pod says otherwise.
const UserID = 65532

// Architectures has the values of [Options.Arch].
var Architectures = []string{"amd64", "arm64"}

// Program is a main package.
type Program struct {
	// Dir is a directory in the program's module. Package is the main package, relative to Dir, such as "./cmd/x".
	Dir, Package string
}

// Options say what is in an image.
type Options struct {
	// Name is the image's name and tag, such as "workqueue:dev".
	Name string
	// Programs are the programs. Each becomes /usr/local/bin/NAME, named after the directory of its package. The image runs
	// the first one.
	Programs []Program
	// Files are further files. Entrypoint is the path of the one that the image runs, if there are no Programs.
	Files      []File
	Entrypoint string
	// Arch is the architecture, one of [Architectures]. Default: that of this process.
	Arch string
}

// File is a file of an image. Its owner is root.
type File struct {
	Path     string // absolute
	Contents []byte
	Mode     int64 // permission bits
}

// Image is an image with its name.
type Image struct {
	v1.Image
	Tag name.Tag
}

const (
	binDir = "usr/local/bin"
	// sbomDir is where scanners such as Trivy and Grype find an image's SBOMs.
	sbomDir = "var/lib/db/sbom"
)

// Build compiles the programs and returns an image of them, in memory.
func Build(ctx context.Context, o Options) (*Image, error) {
	tag, err := parseTag(o.Name)
	if err != nil {
		return nil, err
	}
	if o.Arch == "" {
		o.Arch = runtime.GOARCH
	}
	if !slices.Contains(Architectures, o.Arch) {
		return nil, fmt.Errorf("build image %s: the architecture is %q; it must be one of %s", o.Name, o.Arch, strings.Join(Architectures, ", "))
	}
	if len(o.Programs) == 0 && o.Entrypoint == "" {
		return nil, fmt.Errorf("build image %s: there is no program to put into it", o.Name)
	}
	files, err := compile(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", o.Name, err)
	}
	if len(o.Programs) > 0 {
		o.Entrypoint = "/" + files[0].path
	}
	for _, f := range o.Files {
		if !path.IsAbs(f.Path) || f.Contents == nil {
			return nil, fmt.Errorf("build image %s: file %q must have an absolute path and contents", o.Name, f.Path)
		}
		files = append(files, file{path: strings.TrimPrefix(path.Clean(f.Path), "/"), contents: f.Contents, mode: f.Mode})
	}
	image, err := assemble(o, files)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", o.Name, err)
	}
	return &Image{image, tag}, nil
}

// compile returns the files of the programs: a binary and an SBOM of each.
func compile(ctx context.Context, o Options) (files []file, err error) {
	dir, err := os.MkdirTemp("", "workshop-image-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, program := range o.Programs {
		binary, err := program.compile(ctx, dir, o.Arch)
		if err != nil {
			return nil, err
		}
		contents, err := os.ReadFile(binary)
		if err != nil {
			return nil, err
		}
		sbom, err := newSBOM(binary)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(binary)
		files = append(files,
			file{path: path.Join(binDir, name), contents: contents, mode: 0o755},
			file{path: path.Join(sbomDir, name+".spdx.json"), contents: sbom, mode: 0o644})
	}
	return files, nil
}

// buildSettings are variables that could make a build depend on the user's settings, with the values of every build.
var buildSettings = []string{"CGO_ENABLED=0", "GOOS=linux", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "GOFLAGS=", "GOWORK=off"}

// compile builds a static binary in the directory out, and returns its path.
func (p Program) compile(ctx context.Context, out, arch string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(p.Dir, p.Package))
	if err != nil {
		return "", err
	}
	binary := filepath.Join(out, filepath.Base(dir))
	// The paths of the sources would otherwise be in the binary, and the state of the repository, too.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, p.Package)
	cmd.Dir = p.Dir
	cmd.Env = slices.Concat(os.Environ(), buildSettings, []string{"GOARCH=" + arch, "GOTMPDIR=" + out})
	proc.Group(cmd)
	output, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("compile %s in %s: %w\n%s", p.Package, p.Dir, err, strings.TrimSpace(string(output)))
	}
	// For a package that is not a program, go build succeeds and writes an archive, or nothing.
	if info, err := os.Stat(binary); err != nil || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("compile %s in %s: it is not a main package", p.Package, p.Dir)
	}
	return binary, nil
}

// assemble returns an image of the files. All images have the first layer in common.
func assemble(o Options, files []file) (v1.Image, error) {
	base, err := baseFiles()
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, contents := range [][]file{base, files} {
		layer, err := newLayer(contents)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.Append(image, mutate.Addendum{
			Layer:   layer,
			History: v1.History{CreatedBy: "example.com/controllers/harness/image"},
		}); err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", o.Arch
	if o.Arch == "arm64" {
		config.Variant = "v8"
	}
	config.Config = v1.Config{
		Entrypoint: []string{o.Entrypoint},
		User:       fmt.Sprintf("%d:%d", UserID, UserID),
		WorkingDir: "/",
		Env:        []string{"PATH=/" + binDir},
		Labels: map[string]string{
			"org.opencontainers.image.title":    path.Base(o.Entrypoint),
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// As returns the same image under another name and tag.
func (i *Image) As(imageName string) (*Image, error) {
	tag, err := parseTag(imageName)
	return &Image{i.Image, tag}, err
}

func parseTag(imageName string) (name.Tag, error) {
	tag, err := name.NewTag(imageName, name.WithDefaultTag(""))
	if err != nil || tag.TagStr() == "" {
		return tag, fmt.Errorf("an image cannot be named %q: it must be a name and a tag, such as workqueue:dev", imageName)
	}
	return tag, nil
}

// Write writes images as an archive that "docker load", "podman load", "kind load image-archive" and containerd read. They
// must be of the same architecture.
func Write(w io.Writer, images ...*Image) error {
	named := map[name.Reference]v1.Image{}
	for _, image := range images {
		named[image.Tag] = image.Image
	}
	if len(named) != len(images) {
		return errors.New("write images: two of them have the same name")
	}
	if err := tarball.MultiRefWrite(named, w); err != nil {
		return fmt.Errorf("write images: %w", err)
	}
	return nil
}

// WriteFile writes images to a file, see [Write]. A file that cannot be completed is removed.
func WriteFile(file string, images ...*Image) (err error) {
	partial, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".partial-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(partial.Name()))
		}
	}()
	if err := errors.Join(Write(partial, images...), partial.Chmod(0o644), partial.Close()); err != nil {
		return err
	}
	return os.Rename(partial.Name(), file)
}

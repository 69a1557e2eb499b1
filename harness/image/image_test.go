package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
)

// newModule writes a module with two programs and a library, and returns its directory.
func newModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":            "module example.com/hello\n\ngo 1.26.0\n",
		"cmd/hello/main.go": "package main\n\nimport \"runtime\"\n\nfunc main() { _, file, _, _ := runtime.Caller(0); println(file) }\n",
		"cmd/other/main.go": "package main\n\nfunc main() {}\n",
		"library/x.go":      "package library\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	return dir
}

func hello(dir string) Options {
	return Options{Name: "hello:dev", Programs: []Program{{dir, "./cmd/hello"}}}
}

func build(t *testing.T, o Options) *Image {
	t.Helper()
	image, err := Build(t.Context(), o)
	require.NoError(t, err)
	return image
}

// files returns the headers and the contents of an image's files, by path.
func files(t *testing.T, image *Image) (map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	headers, contents := map[string]*tar.Header{}, map[string][]byte{}
	archive := tar.NewReader(mutate.Extract(image))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		require.NoError(t, err)
		name := strings.TrimSuffix(header.Name, "/")
		headers[name] = header
		contents[name], err = io.ReadAll(archive)
		require.NoError(t, err)
	}
}

// The bytes depend on the sources, and neither on the directory that they are in, nor on the user's settings.
func TestSameSourcesSameBytes(t *testing.T) {
	archive := func(o Options) []byte {
		var out bytes.Buffer
		require.NoError(t, Write(&out, build(t, o)))
		return out.Bytes()
	}
	dir := newModule(t)
	first := archive(hello(dir))
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("GOAMD64", "v3")
	require.True(t, bytes.Equal(first, archive(hello(newModule(t)))), "the archives of two copies of a program differ")

	main := filepath.Join(dir, "cmd/hello/main.go")
	require.NoError(t, os.WriteFile(main, []byte("package main\n\nfunc main() { println(1) }\n"), 0o600))
	require.False(t, bytes.Equal(first, archive(hello(dir))), "the program has changed, and its image has not")
}

func TestImageRunsTheFirstProgramWithoutPrivileges(t *testing.T) {
	dir := newModule(t)
	o := hello(dir)
	o.Programs = append(o.Programs, Program{dir, "./cmd/other"})
	image := build(t, o)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "65532:65532", config.Config.User)
	require.Equal(t, []string{"/usr/local/bin/hello"}, config.Config.Entrypoint)
	require.Equal(t, []string{"PATH=/usr/local/bin"}, config.Config.Env)
	require.Equal(t, "hello", config.Config.Labels["org.opencontainers.image.title"])
	require.Equal(t, "linux", config.OS)
	require.Equal(t, runtime.GOARCH, config.Architecture)

	headers, contents := files(t, image)
	for path, mode := range map[string]int64{
		"usr/local/bin/hello": 0o755, "usr/local/bin/other": 0o755, "etc/passwd": 0o644, "etc/ssl/certs": 0o755, "tmp": 0o1777,
	} {
		require.Contains(t, headers, path)
		require.Equal(t, mode, headers[path].Mode, path)
		require.Zero(t, headers[path].Uid, path)
	}
	require.Contains(t, string(contents["etc/passwd"]), "nonroot:x:65532:65532:")
	require.True(t, x509.NewCertPool().AppendCertsFromPEM(contents["etc/ssl/certs/ca-certificates.crt"]))
}

func TestBinaryIsStaticAndOfTheRightArchitecture(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		o := hello(newModule(t))
		o.Arch = arch
		image := build(t, o)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, arch, config.Architecture)
		_, contents := files(t, image)
		binary, err := elf.NewFile(bytes.NewReader(contents["usr/local/bin/hello"]))
		require.NoError(t, err)
		require.Equal(t, machine, binary.Machine)
		for _, segment := range binary.Progs {
			require.NotEqual(t, elf.PT_INTERP, segment.Type, "the binary needs a dynamic linker")
		}
	}
}

// This package is a program's with dependencies.
func TestSBOMListsTheModules(t *testing.T) {
	image := build(t, Options{Name: "bootstrap:dev", Programs: []Program{{"..", "./cmd/bootstrap"}}})
	_, contents := files(t, image)
	var document spdxDocument
	require.NoError(t, json.Unmarshal(contents["var/lib/db/sbom/bootstrap.spdx.json"], &document))
	require.Equal(t, "SPDX-2.3", document.Version)
	versions := map[string]string{}
	for _, p := range document.Packages {
		versions[p.Name] = p.Version
	}
	require.Equal(t, strings.TrimPrefix(runtime.Version(), "go"), versions["stdlib"])
	require.Contains(t, versions, "example.com/controllers/harness/cmd/bootstrap")
	require.Regexp(t, `^v0\.`, versions["github.com/gofrs/flock"])
	require.Len(t, document.Relationships, len(document.Packages))
	require.Contains(t, document.Namespace, hexSHA256(contents["usr/local/bin/bootstrap"]))
}

func TestWrittenArchiveCanBeRead(t *testing.T) {
	dir := newModule(t)
	one := build(t, hello(dir))
	two, err := build(t, Options{Name: "other:dev", Programs: []Program{{dir, "./cmd/other"}}}).As("example.com/two:v2")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "images.tar")
	require.NoError(t, WriteFile(path, one, two))
	for _, image := range []*Image{one, two} {
		read, err := tarball.ImageFromPath(path, &image.Tag)
		require.NoError(t, err)
		want, err := image.ConfigName()
		require.NoError(t, err)
		got, err := read.ConfigName()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.EqualError(t, WriteFile(path, one, one), "write images: two of them have the same name")
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "a file that could not be completed is left behind")
}

func TestErrors(t *testing.T) {
	dir := newModule(t)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Name: "hello", Programs: hello(dir).Programs}, `an image cannot be named "hello": it must be a name and a tag, such as workqueue:dev`},
		{Options{Name: "Hello:dev", Programs: hello(dir).Programs}, `an image cannot be named "Hello:dev"`},
		{Options{Name: "hello:dev"}, "there is no program to put into it"},
		{Options{Name: "hello:dev", Programs: hello(dir).Programs, Arch: "m68k"}, `the architecture is "m68k"; it must be one of amd64, arm64`},
		{Options{Name: "hello:dev", Programs: []Program{{dir, "./library"}}}, "compile ./library in " + dir + ": it is not a main package"},
		{Options{Name: "hello:dev", Programs: []Program{{dir, "./nowhere"}}}, "compile ./nowhere in " + dir + ": exit status 1\n"},
	} {
		_, err := Build(t.Context(), c.o)
		require.ErrorContains(t, err, c.want)
	}
	_, err := build(t, hello(dir)).As("another")
	require.ErrorContains(t, err, `an image cannot be named "another"`)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("not needed any more"))
	_, err = Build(ctx, hello(dir))
	require.ErrorContains(t, err, "not needed any more")
}

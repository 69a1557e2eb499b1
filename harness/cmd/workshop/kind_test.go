package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
)

// withoutDocker returns the repository with a docker command whose daemon is not running.
func (r *repository) withoutDocker() *repository {
	r.t.Helper()
	dir := r.t.TempDir()
	script := "#!/bin/sh\nif [ $1 = --version ]; then echo Docker version 28.2.2; exit; fi\n" +
		"echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' >&2; exit 1\n"
	require.NoError(r.t, os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o700))
	return r.with("PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "KIND_EXPERIMENTAL_PROVIDER=")
}

func TestKindWithoutDocker(t *testing.T) {
	r := newRepository(t, "$ true").withoutDocker()
	for _, args := range [][]string{
		{"lesson", "1", "--cluster=kind"},
		{"lesson", "1", "--cluster=kind", "--keep"},
		{"run", "--kind", "--", "true"},
		{"kind-down"},
	} {
		out, status := r.workshop("", args...)
		require.Equal(t, 1, status, "%s", out)
		require.Contains(t, out, "workshop: Docker is installed but not running; start it, with")
	}
	require.NoDirExists(t, filepath.Join(r.dir, ".workshop", "kind"))
	r.requireNothingLeft()
}

// The kubelets of simulated machines end with the lesson, so a cluster of them would be of no use.
func TestKindKeepsNoSimulatedMachines(t *testing.T) {
	r := newRepository(t, "$ true", "```", "", "<!-- nodes: 2 -->", "", "```console", "$ true").withoutDocker()
	out, status := r.workshop("", "lesson", "1", "--cluster=kind", "--keep")
	require.Equal(t, 1, status, "%s", out)
	require.Contains(t, out, "lesson 1 needs simulated machines, which end with the lesson, so its kind cluster cannot be kept; leave out KEEP=1")
}

func TestImages(t *testing.T) {
	r := newRepository(t, "$ true")
	r.write("01-mini/go.mod", "module example.com/mini\n\ngo 1.26.0\n")
	r.write("01-mini/cmd/mini/main.go", "package main\n\nfunc main() {}\n")
	r.write("01-mini/manifests/pod.yaml", "kind: Pod\nspec: {containers: [{image: 'mini:dev'}, {image: 'nginx:1.29'}]}\n")
	out, status := r.workshop("", "images", "--arch", "arm64")
	require.Zero(t, status, "%s", out)
	dir := filepath.Join(r.dir, ".workshop", "images")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	tag, err := name.NewTag("mini:dev")
	require.NoError(t, err)
	image, err := tarball.ImageFromPath(filepath.Join(dir, "mini-arm64.tar"), &tag)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "arm64", config.Architecture)
	require.Equal(t, []string{"/usr/local/bin/mini"}, config.Config.Entrypoint)

	out, status = r.workshop("", "images", "7")
	require.Equal(t, 1, status)
	require.Contains(t, out, `there is no lesson "7"`)
	out, status = r.workshop("", "images", "--arch", "m68k")
	require.Equal(t, 1, status)
	require.Contains(t, out, `the architecture is "m68k"`)

	// A module of one's own is built like a lesson. The files are beside its own.
	r.write("mine/go.mod", "module example.com/mine\n\ngo 1.26.0\n")
	r.write("mine/cmd/mine/main.go", "package main\n\nfunc main() {}\n")
	out, status = r.workshop("", "images", "mine", "--arch", "arm64")
	require.Equal(t, 1, status)
	require.Contains(t, out, "mine has an image that is named after a program there: NAME:dev")
	r.write("mine/manifests/pod.yaml", "kind: Pod\nspec: {containers: [{image: 'mine:dev'}]}\n")
	out, status = r.workshop("", "images", "mine", "--arch", "arm64")
	require.Zero(t, status, "%s", out)
	require.FileExists(t, filepath.Join(r.dir, "mine", "images", "mine-arm64.tar"))
	out, status = r.workshop("", "images", "yours")
	require.Equal(t, 1, status)
	require.Contains(t, out, "yours is neither the number of a lesson nor a directory with a Go module")
}

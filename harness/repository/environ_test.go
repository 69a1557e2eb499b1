package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/testinput"
)

// inherit lists the files whose programs inherit the environment of their caller, and so may find the caller's clusters and
// accounts, and what these programs are.
var inherit = map[string]string{
	"03-workqueue/test/score/scene.go":         "our kubectl",
	"04-crd/test/bench/measure.go":             "our kubectl",
	"05-reboot-operator/test/bench/measure.go": "our kubectl",
	"06-secret-sync/test/bench/bench.go":       "our kubectl",
	"harness/clustertest/clustertest.go":       "our kubectl",
	"harness/lesson/lesson.go":                 "our kubectl",
	"harness/cluster/process.go":               "our control plane",
	"harness/cmd/bootstrap/main.go":            "the workshop",
	"harness/guard/rerun.go":                   "the workshop",
	"harness/cmd/mutation/gremlins.go":         "go list",
	"harness/cmd/vet/main.go":                  "go tool vet",
	"harness/exercise/attempts.go":             "git apply",
	"harness/exercise/build.go":                "go build",
	"harness/gobuild/gobuild.go":               "go build",
	"harness/image/image.go":                   "go build",
	"harness/mutants/mutants.go":               "git apply and go build",
	"harness/offline/bundle.go":                "go build and go list",
	"harness/offline/offline.go":               "go list and go mod download",
	"harness/cmd/workshop/kind.go":             "a command that the user gives",
	"harness/cmd/workshop/run.go":              "a command that the user gives",
	"04-crd/cmd/neutron/main.go":               "a command that the user gives",
	"e2e/on-node/main.go":                      "a command on a kind node",
	"harness/environ/environ.go":               "none: it selects from the environment",
}

// A program that is not ours gets an environment of its own, see package environ.
func TestProgramsInheritNoEnvironment(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	found := map[string]bool{}
	for _, module := range moduleDirs(t, root) {
		testinput.Declare(filepath.Join(root, module))
		require.NoError(t, filepath.WalkDir(filepath.Join(root, module), func(path string, entry fs.DirEntry, err error) error {
			if entry != nil && entry.IsDir() && entry.Name() == "my" { // a participant's copies of the exercises
				return fs.SkipDir
			}
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if strings.Contains(string(text), "os.Environ()") {
				found[filepath.ToSlash(name)] = true
			}
			return err
		}))
	}
	for name := range found {
		if inherit[name] == "" {
			t.Errorf("%s passes on os.Environ(). Use environ.Isolated, or list here what the program is", name)
		}
	}
	for name := range inherit {
		if !found[name] {
			t.Errorf("%s does not use os.Environ() any more: remove it from this list", name)
		}
	}
}

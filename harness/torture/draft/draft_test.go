package draft

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/torture"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// From a program and a sample come steps and rules. The scenario tells the controller from those that have a bug, and what a person changes
// in it stays.
func TestWrite(t *testing.T) {
	suite.Long(t, "each controller is watched for half a minute")
	t.Parallel()
	program, err := gobuild.Build(t.Context(), gobuild.Program{Name: "copier", Dir: "../..", Package: "./torture/draft/internal/copier", Sources: []string{"go.mod", "go.sum", "torture/draft/internal/copier"}}, os.Stderr)
	require.NoError(t, err)
	lab, err := torture.Open(t.Context(), 1, os.Stderr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	file := filepath.Join(t.TempDir(), "torture.yaml")
	options := Options{File: file, Samples: []string{"internal/copier/sample.yaml"}, Command: []string{program, "--kubeconfig={kubeconfig}"}, Progress: os.Stderr}

	result, err := Write(t.Context(), lab, options)
	require.NoError(t, err)
	require.Len(t, result.Notes, 1)
	require.Contains(t, result.Notes[0], "the controller has an administrator's rights")
	require.GreaterOrEqual(t, result.Runs, 2)
	require.Empty(t, result.Ports)
	scenario, err := torture.Read(file)
	require.NoError(t, err)
	require.Equal(t, []string{"configmaps"}, scenario.Resources)
	require.Empty(t, scenario.Scope)
	require.True(t, scenario.MayDiffer.IsEmpty(), "%v", scenario.MayDiffer)
	require.Equal(t, []string{
		"the samples are created", "somebody deletes configmaps copy", "somebody changes configmaps copy: data.greeting", "configmaps source: data.greeting changes",
		"configmaps source: data.greeting changes back", "while the controller is down, somebody deletes configmaps copy, configmaps source: data.greeting changes",
		"the samples are deleted", "the samples are created again",
	}, names(scenario))

	// What fails with it is the controller that is wrong.
	scenario.Patience.Duration = 8 * time.Second
	tortured := torture.Options{Scenario: scenario, Commands: torture.Single(options.Command...), MaxPlans: 6, Unconfirmed: true, Progress: os.Stderr}
	tortured.Baseline, err = lab.Learn(t.Context(), tortured)
	require.NoError(t, err)
	report, err := lab.Run(t.Context(), tortured)
	require.NoError(t, err)
	require.Empty(t, failed(report))
	options.Command = append([]string{"env", "BUG=gives-up"}, options.Command...)
	tortured.Commands = torture.Single(options.Command...)
	report, err = lab.Run(t.Context(), tortured)
	require.NoError(t, err)
	require.NotEmpty(t, failed(report))

	// A controller that repairs nothing gets no steps in which something is to be repaired. This one has a port of its own, so there is one
	// run at a time.
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	edited := strings.Replace(string(text), "resources: [configmaps]\n", "resources: [configmaps] # mine\npatience: 20s\n", 1)
	require.NoError(t, os.WriteFile(file, []byte(edited), 0o600))
	options.Command[1] = "BUG=no-repair"
	port := freePort(t)
	options.Command = append(options.Command, "--address=127.0.0.1:"+port)
	result, err = Write(t.Context(), lab, options)
	require.NoError(t, err)
	require.Equal(t, []string{"resources", "patience"}, result.Kept)
	require.Equal(t, []string{port}, result.Ports)
	require.Contains(t, result.Notes, "Nobody repairs it when somebody deletes configmaps copy; it is no step of the scenario.")
	scenario, err = torture.Read(file)
	require.NoError(t, err)
	require.Equal(t, []string{"the samples are created", "configmaps source: data.greeting changes", "configmaps source: data.greeting changes back",
		"while the controller is down, configmaps source: data.greeting changes",
		"the samples are deleted", "the samples are created again"}, names(scenario))
	text, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "resources: [configmaps] # mine\n")
}

func freePort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

func failed(r *torture.Report) (messages []string) {
	for _, o := range r.Outcomes {
		if o.Verdict != torture.Passed {
			messages = append(messages, fmt.Sprintf("%s: %s: %s", o.Plan, o.Verdict, o.Message))
		}
	}
	return messages
}

func names(s *torture.Scenario) (all []string) {
	for _, step := range s.Steps {
		all = append(all, step.Name)
	}
	return all
}

// What keeps init from writing a scenario is said with what to do about it.
func TestWriteWrongInput(t *testing.T) {
	lab, err := torture.Open(t.Context(), 1, os.Stderr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"a program that ends":  {Options{Command: []string{"sh", "-c", "echo unknown flag >&2; exit 2"}}, "at its start, without any fault, died: it exited by itself, with exit status 2: unknown flag"},
		"no such program":      {Options{Command: []string{"no-such-program"}}, "no-such-program"},
		"no such manifest":     {Options{Command: []string{"true"}, Manifests: []string{"none.yaml"}}, "--manifest: stat none.yaml: no such file or directory"},
		"a sample without CRD": {Options{Command: []string{"sleep", "60"}, Samples: []string{write("foo.yaml", "{apiVersion: example.com/v1, kind: Foo, metadata: {name: a}}")}}, "name the file with its CustomResourceDefinition with --manifest"},
		"a sample without name": {
			Options{Command: []string{"true"}, Samples: []string{write("nameless.yaml", "{apiVersion: v1, kind: ConfigMap}")}}, "--sample: a ConfigMap in " + dir + "/nameless.yaml has no name",
		},
		"two accounts": {
			Options{Command: []string{"true"}, Manifests: []string{write("two.yaml", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}\n---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: b}}")}},
			"the manifests have 2 ServiceAccounts: a, b; say with whose rights the controller runs, with --account",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.File, c.options.Progress = filepath.Join(t.TempDir(), "torture.yaml"), os.Stderr
			_, err := Write(t.Context(), lab, c.options)
			require.ErrorContains(t, err, c.want)
			require.NoFileExists(t, c.options.File)
		})
	}
}

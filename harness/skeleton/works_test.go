package skeleton

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/play"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/torture"
)

// newController writes a controller to a directory of its own.
func newController(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "pod-reaper")
	_, err := Write(t.Context(), Options{Root: repositoryRoot(t), Name: "pod-reaper", Module: "github.com/me/reaper", Dir: dir})
	require.NoError(t, err)
	return dir
}

// shell runs a command as a person would in a directory, with the go command's caches.
func shell(t *testing.T, dir, command string) (output string, err error) {
	t.Helper()
	env, err := environ.Isolated(t.TempDir())
	require.NoError(t, err)
	forGo, err := environ.GoCommand(t.Context())
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(append(env, forGo...), "GOWORK=off", "CGO_ENABLED=0", "KUBE_CACHE_MUTATION_DETECTOR=true")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// edit replaces a text in the controller, which has it once.
func edit(t *testing.T, dir, before, after string) {
	t.Helper()
	path := filepath.Join(dir, "controller.go")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), before), before)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), before, after, 1)), 0o600))
}

// The commands of the new controller's CI succeed: it is formatted, compiles, and passes vet and its tests. They fail for a
// controller with a bug.
func TestItsCI(t *testing.T) {
	suite.Long(t, "it compiles a controller")
	t.Parallel()
	dir := newController(t)
	text, err := os.ReadFile(filepath.Join(dir, ".github", "workflows", "ci.yaml"))
	require.NoError(t, err)
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				If  string `json:"if"`
				Run string `json:"run"`
			} `json:"steps"`
		} `json:"jobs"`
	}
	require.NoError(t, yaml.Unmarshal(text, &workflow))
	for _, step := range workflow.Jobs["torture"].Steps { // without the variable, it only says why there is no torture
		isNotice := strings.Contains(step.Run, "::notice::")
		require.Equal(t, isNotice, step.If == "vars.WORKSHOP_REPOSITORY == ''", step.Run)
		require.Equal(t, !isNotice, strings.HasPrefix(step.If, "vars.WORKSHOP_REPOSITORY != ''"), step.Run)
	}
	var commands []string
	for _, step := range workflow.Jobs["test"].Steps {
		if step.Run == "" {
			continue
		}
		commands = append(commands, step.Run)
		out, err := shell(t, dir, strings.ReplaceAll(step.Run, "-race ", "")) // that needs a C compiler
		require.NoError(t, err, "%s\n%s", step.Run, out)
	}
	for _, want := range []string{"gofmt", "go mod tidy -diff", "go vet ./...", "go build ./...", "go test -race ./..."} {
		require.True(t, slices.ContainsFunc(commands, func(c string) bool { return strings.Contains(c, want) }), "CI does not run %s", want)
	}

	for name, bug := range map[string]struct{ before, after, fails string }{
		"it never retries":             {"c.queue.AddRateLimited(key)", "c.queue.Forget(key)", "TestRetriesWithBackoff"},
		"it deletes all Pods":          {"if !isStale(pod, changed) {", "if pod.DeletionTimestamp != nil {", "TestReplacesPodsWhenTheConfigChanges"},
		"it does nothing after events": {"c.enqueueFrontend(logger, config) },\n\t}", "},\n\t}", "TestReplacesPodsWhenTheConfigChanges"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := newController(t)
			edit(t, broken, bug.before, bug.after)
			out, err := shell(t, broken, "go test -timeout 2m ./...")
			require.Error(t, err)
			require.Contains(t, out, "--- FAIL: "+bug.fails)
		})
	}
}

// The new controller passes the most telling plans of its scenario, and torture finds a bug in it.
func TestTorture(t *testing.T) {
	suite.Long(t, "it takes a minute")
	t.Parallel()
	lab, err := torture.Open(t.Context(), 3, os.Stderr)
	require.NoError(t, err)
	defer func() { require.NoError(t, lab.Close()) }()
	run := func(dir string, o torture.Options) *torture.Report {
		t.Helper()
		o.Scenario, err = torture.Read(filepath.Join(dir, "torture", "scenario.yaml"))
		require.NoError(t, err)
		o.Commands, err = o.Scenario.Build(t.Context(), os.Stderr)
		require.NoError(t, err)
		o.Nodes, o.Progress = 3, os.Stderr
		report, err := lab.Run(t.Context(), o)
		require.NoError(t, err)
		return report
	}
	right := newController(t)
	report := run(right, torture.Options{MaxPlans: 16})
	require.Empty(t, report.Failures())
	require.Greater(t, len(report.Outcomes), 2*len(report.NotRun()), "most plans could not be run")

	broken := newController(t)
	edit(t, broken, "c.queue.AddRateLimited(key)", "c.queue.Forget(key)")
	fault, err := apiproxy.ParseFault("verb=delete,resource=pods,nth=1,refuse=500")
	require.NoError(t, err)
	report = run(broken, torture.Options{Faults: []apiproxy.Fault{fault}, Replays: 1})
	require.NotEmpty(t, report.Failures())
	require.Equal(t, torture.Lost, report.Failures()[0].Verdict)
}

// The commands of the new controller's page do what it says.
func TestItsPage(t *testing.T) {
	suite.Long(t, "it takes a minute")
	t.Parallel()
	root, dir := repositoryRoot(t), newController(t)
	page, err := play.Read(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	for part := range page.Parts {
		steps := page.Parts[part].Steps
		for i := range steps {
			steps[i].Command = strings.Replace(steps[i].Command, "--budget 3m", "--most 4", 1)
			// For the image of the lesson itself, the tests of package image compile all that is in it for this architecture.
			steps[i].Command = strings.Replace(steps[i].Command, "workshop images .", "true", 1)
			if steps[i].Command == "true" {
				steps[i].Expect = nil
			}
		}
	}
	c, err := cluster.Shared()
	require.NoError(t, err)
	workshop, err := gobuild.Build(t.Context(), gobuild.Workshop(filepath.Join(root, "harness")), os.Stderr)
	require.NoError(t, err)
	env, err := gobuild.Env(t.Context())
	require.NoError(t, err)
	scratch := t.TempDir()
	env = append(env, c.Env(scratch)...)
	path := []string{filepath.Dir(workshop), os.Getenv("PATH")}
	if c.Kubectl != "" {
		path = append([]string{c.Kubectl}, path...)
	}
	env = append(env, "PATH="+strings.Join(path, string(os.PathListSeparator)), cluster.RootVariable+"="+root, "CGO_ENABLED=0", "GOWORK=off")
	var screen strings.Builder
	player := play.Player{Out: &screen, Scratch: scratch, Limit: 10 * time.Minute, Env: env}
	_, err = player.Play(t.Context(), page)
	require.NoError(t, err, "%s", screen.String())
	require.Contains(t, screen.String(), "4 plans")
}

package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/testinput"
)

// What keeps make from building anything is said in one sentence, at once.
func TestMakeSaysWhatIsMissing(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	makefile := filepath.Join(root, "Makefile")
	testinput.Declare(makefile)
	text, err := os.ReadFile(makefile)
	require.NoError(t, err)
	// tools are the commands that make finds, besides those of the shell.
	checkout := func(t *testing.T, tools ...string) (dir, path string) {
		t.Helper()
		dir, err := filepath.EvalSymlinks(t.TempDir()) // as make prints it
		require.NoError(t, err)
		path = t.TempDir()
		for _, name := range append(tools, "sh", "sed", "cat", "getconf", "mkdir", "make", "env") {
			program, err := exec.LookPath(name)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(program, filepath.Join(path, name)))
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "harness", "controlplane"), 0o755))
		for name, text := range map[string]string{
			"go.work": "go 1.26.0\n", "harness/go.mod": "module example.com/harness\n\ngo 1.26.0\n", "harness/controlplane/lean.txt": "",
			"Makefile": string(text),
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		return dir, path
	}
	run := func(t *testing.T, dir, path, target string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "make", target)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + path, "HOME=" + os.Getenv("HOME"), "GOTOOLCHAIN=local", "GOPROXY=off", "CC=no-such-compiler -m64"}
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s", out)
		return string(out)
	}
	for _, target := range []string{"lesson", "test", "check", "test-rest"} {
		t.Run("no go command for "+target, func(t *testing.T) {
			dir, path := checkout(t)
			require.Contains(t, run(t, dir, path, target), "There is no go command. Install Go 1.26 or newer: https://go.dev/dl\n")
		})
	}
	for _, target := range []string{"lesson", "test", "check"} {
		t.Run("a directory that cannot be written to for "+target, func(t *testing.T) {
			dir, path := checkout(t, "go")
			require.NoError(t, os.WriteFile(filepath.Join(dir, ".workshop"), nil, 0o644)) // what is read-only for root, too
			require.Contains(t, run(t, dir, path, target), "make cannot write to "+dir+"/.workshop")
		})
	}
	for _, target := range []string{"test-rest", "test-all"} {
		t.Run("no C compiler for "+target, func(t *testing.T) {
			dir, path := checkout(t, "go")
			out := run(t, dir, path, target)
			require.Contains(t, out, "The race detector needs a C compiler, and there is no no-such-compiler. Install one")
			require.NoDirExists(t, filepath.Join(dir, ".workshop"), "nothing was begun")
		})
	}
}

// What the caller's environment says about other builds does not reach the go command.
func TestMakeIgnoresTheCallersBuilds(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	makefile := filepath.Join(root, "Makefile")
	testinput.Declare(makefile)
	show := filepath.Join(t.TempDir(), "Makefile")
	require.NoError(t, os.WriteFile(show, []byte("include "+makefile+"\nshow:\n\t@env\n"), 0o600))
	cmd := exec.CommandContext(t.Context(), "make", "-f", show, "show")
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"GOOS=plan9", "GOARCH=arm64", "GO111MODULE=off", "GOEXPERIMENT=nope", "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -buildvcs=auto -modfile=x"}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var settings []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "GO") {
			settings = append(settings, strings.TrimSpace(line))
		}
	}
	require.Equal(t, []string{"GOFLAGS=-modcacherw -buildvcs=auto -buildvcs=false"}, settings)
}

// What somebody types who has not read the list of targets does what they mean. make prints what it would run.
func TestMakeUnderstands(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	testinput.Declare(filepath.Join(root, "Makefile"))
	for typed, want := range map[string]string{
		"lesson 1":                   `bootstrap harness lesson 1 --cluster "embedded"`,
		"lesson 1 2":                 `bootstrap harness lesson 1 2 --cluster`,
		"lesson1":                    `make lesson N=1`,
		"lesson N=1":                 `bootstrap harness lesson "1" --cluster "embedded"`,
		"lesson 5 STEP=1":            `--step="true"`,
		"lesson 5 STEP=0":            `--step="false"`,
		"lesson 5 STEP=maybe":        `--step="maybe"`,
		"lesson 5 FROM=A_stale":      `--from "A_stale"`,
		"lesson 5 KEEP=1":            `--keep`,
		"lesson 5 CLUSTER=up YES=1":  `lesson 5 --cluster "up"`,
		"lesson 5 VIEW=1":            `--view`,
		"exercise":                   `bootstrap harness exercises`,
		"exercises":                  `bootstrap harness exercises`,
		"exercise 7":                 `bootstrap harness exercises 7`,
		"exercises 7":                `bootstrap harness exercises 7`,
		"exercise 7 8":               `bootstrap harness exercises 7 8`,
		"exercise 7 N=5":             `bootstrap harness exercises 7`,
		"guess 1 2 3 4 5 6 7 8 9 10": `bootstrap harness guess 1 2 3 4 5 6 7 8 9 10`,
		"guess":                      `bootstrap harness guess`,
		"guess lease-deleted":        `bootstrap harness guess lease-deleted`,
		"guess a b":                  `bootstrap harness guess a b`,
		"new my-controller":          `bootstrap harness new my-controller --dir "../my-controller"`,
		"new mine DIR=/tmp/x":        `bootstrap harness new mine --dir "/tmp/x"`,
		"guess LESSON=5 TOPIC=lease": `--lesson "5" --topic "lease"`,
		"guess ROOM=1 KEEP=yes":      `--room --keep`,
	} {
		words := strings.Fields(typed)
		require.Contains(t, strings.Join(strings.Fields(runMake(t, root, append([]string{"-n"}, words...)...)), " "), want, typed)
	}
	for typed, without := range map[string]string{
		"lesson 5": "--step", "lesson 5 KEEP=0": "--keep", "lesson 5 VIEW=no YES=false": "--view", "guess ROOM=0": "--room", "exercise": "exercises 1",
		"lesson 5 KEEP=": "--keep",
	} {
		require.NotContains(t, runMake(t, root, append([]string{"-n"}, strings.Fields(typed)...)...), without, typed)
	}
}

// A name that is also a target would be made, too: "make new reset" would delete the state of the cluster.
func TestMakeRefusesNamesThatAreTargets(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	testinput.Declare(filepath.Join(root, "Makefile"))
	for _, words := range [][]string{{"new", "reset"}, {"guess", "check"}, {"guess", "lease-deleted", "down"}, {"lesson", "test"}} {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"-n"}, words...)...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%v: %s", words, out)
		taken := words[len(words)-1]
		require.Contains(t, string(out), `"`+taken+`" is a target of make, so it cannot be named here; the workshop command of make env can: workshop `+words[0]+" "+taken)
	}
}

// A learner's list fits on a screen, and the whole one has every target that there is.
func TestMakeListsTargets(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	makefile := filepath.Join(root, "Makefile")
	testinput.Declare(makefile)
	list := func(target string) (targets, lines []string) {
		cmd := exec.CommandContext(t.Context(), "make", target)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		for line := range strings.Lines(string(out)) {
			lines = append(lines, line)
			require.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 100)
			if rest, ok := strings.CutPrefix(line, "  make "); ok {
				targets = append(targets, strings.Fields(rest)[0])
			}
		}
		return targets, lines
	}
	text, err := os.ReadFile(makefile)
	require.NoError(t, err)
	few, lines := list("help")
	require.LessOrEqual(t, len(lines), 40)
	require.Subset(t, few, []string{"lesson", "exercise", "guess", "up", "env", "test", "help-all"})
	require.Equal(t, []string{"lesson", "exercise", "guess"}, few[:3])
	all, _ := list("help-all")
	require.Len(t, all, len(regexp.MustCompile(`(?m)^[a-z0-9-]+:.*## `).FindAll(text, -1)))
	require.Subset(t, all, few)
	for _, name := range strings.Fields(regexp.MustCompile(`(?m)^first = (.*)$`).FindStringSubmatch(string(text))[1]) {
		require.Contains(t, few, name, "the list of what a learner needs names a target")
	}
}

package skeleton

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/lesson"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	return root
}

// Each refusal names what is wrong, and what to do. Nothing is written.
func TestRefuses(t *testing.T) {
	root := repositoryRoot(t)
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	require.NoError(t, os.Mkdir(full, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(full, "file"), nil, 0o600))
	workspace := filepath.Join(dir, "workspace")
	require.NoError(t, os.Mkdir(workspace, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(workspace, "go.work"), nil, 0o600))
	const kubernetes = "Kubernetes allows at most 63 lower-case letters, digits and hyphens"
	for name, test := range map[string]struct {
		options Options
		want    []string
	}{
		"no name":                      {Options{}, []string{"has no name", "such as my-controller"}},
		"upper case":                   {Options{Name: "MyController"}, []string{`"MyController"`, kubernetes, "such as my-mycontroller"}},
		"an underscore":                {Options{Name: "pod_reaper"}, []string{kubernetes, "such as my-pod-reaper"}},
		"a slash":                      {Options{Name: "../reaper"}, []string{kubernetes, "such as my-reaper"}},
		"a dot":                        {Options{Name: "reaper.v1"}, []string{kubernetes}},
		"a digit first":                {Options{Name: "1st"}, []string{kubernetes, "such as my-1st"}},
		"a hyphen last":                {Options{Name: "reaper-"}, []string{kubernetes}},
		"a word of another language":   {Options{Name: "контроллер"}, []string{kubernetes, "such as my-controller"}},
		"64 letters":                   {Options{Name: strings.Repeat("a", 64)}, []string{kubernetes, "such as my-controller"}},
		"a namespace of Kubernetes":    {Options{Name: "kube-system"}, []string{"a namespace of Kubernetes", "such as my-kube-system"}},
		"the default namespace":        {Options{Name: "default"}, []string{"a namespace of Kubernetes", "such as my-default"}},
		"what it would delete":         {Options{Name: "frontend"}, []string{"the objects that it works on are called so already", "such as my-frontend"}},
		"ignored by the go command":    {Options{Name: "vendor"}, []string{"the go command ignores directories of that name"}},
		"a directory of the skeleton":  {Options{Name: "manifests"}, []string{"there is a directory of that name"}},
		"a keyword":                    {Options{Name: "select"}, []string{`would be called "select"`, "means something else in Go"}},
		"a keyword without its hyphen": {Options{Name: "de-fer"}, []string{`would be called "defer"`, "means something else in Go"}},
		"a predeclared name":           {Options{Name: "error"}, []string{"means something else in Go"}},
		"the main package":             {Options{Name: "main"}, []string{"means something else in Go"}},
		"a variable of the program":    {Options{Name: "controller"}, []string{"main.go has that word for something else", "such as my-controller"}},
		"another package's name":       {Options{Name: "klog"}, []string{"main.go has that word for something else"}},
		"a module without domain":      {Options{Name: "reaper", Module: "reaper"}, []string{`the path "reaper"`, "missing dot in first path element", "begins with a domain"}},
		"a module with a space":        {Options{Name: "reaper", Module: "example.com/my reaper"}, []string{"begins with a domain"}},
		"a module of version 1":        {Options{Name: "reaper", Module: "example.com/reaper/v1"}, []string{"begins with a domain"}},
		"a module that it requires":    {Options{Name: "reaper", Module: "k8s.io/client-go"}, []string{`the path "k8s.io/client-go"`, "give MODULE (--module) another"}},
		"no such lesson":               {Options{Name: "reaper", From: "9"}, []string{`no skeleton from lesson "9"`, "3 (03-workqueue)"}},
		"a lesson without skeleton":    {Options{Name: "reaper", From: "1"}, []string{`no skeleton from lesson "1"`, "3 (03-workqueue)"}},
		"a directory with a file":      {Options{Name: "reaper", Dir: full}, []string{full + " is not empty", "--dir"}},
		"a file":                       {Options{Name: "reaper", Dir: filepath.Join(full, "file")}, []string{"cannot be written to", "--dir"}},
		"below a file":                 {Options{Name: "reaper", Dir: filepath.Join(full, "file", "below")}, []string{"cannot be written to", "--dir"}},
		"a workspace":                  {Options{Name: "reaper", Dir: filepath.Join(workspace, "a", "b")}, []string{"the go.work there", "with DIR (--dir), such as " + filepath.Join(dir, "reaper")}},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Root = root
			if test.options.Dir == "" {
				test.options.Dir = filepath.Join(dir, "new")
			}
			_, err := Write(t.Context(), test.options)
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "full and workspace")
	entries, err = os.ReadDir(workspace)
	require.NoError(t, err)
	require.Len(t, entries, 1, "go.work")
}

// After an error in the midst of it, nothing is left: neither files, nor directories that were made for them.
func TestLeavesNothingAfterAnError(t *testing.T) {
	files := map[string][]byte{"a/b": nil, "a/c": nil, "d": nil, "d/e": nil, "f": nil} // d cannot be a file and a directory
	dir := t.TempDir()
	require.Error(t, writeAll(t.Context(), filepath.Join(dir, "new", "controller"), files))
	requireEmpty(t, dir)

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Write(cancelled, Options{Root: repositoryRoot(t), Name: "reaper", Dir: filepath.Join(dir, "new", "controller")})
	require.ErrorIs(t, err, context.Canceled)
	requireEmpty(t, dir)

	// A directory that was there stays, with what was in it.
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".git"), 0o700))
	require.Error(t, writeAll(t.Context(), dir, files))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	_, err = Write(t.Context(), Options{Root: repositoryRoot(t), Name: "reaper", Dir: dir})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "cmd", "reaper", "main.go"))
}

// A file that could not be written as a whole goes with the others, also in a directory that was there.
func TestLeavesNoHalfWrittenFile(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("a device that is always full: ", err)
	}
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/dev/full", filepath.Join(dir, "full"))) // opened like a new file
	require.ErrorContains(t, writeAll(t.Context(), dir, map[string][]byte{"full": []byte("text")}), "no space left on device")
	requireEmpty(t, dir)
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// No word of a lesson is left, except where it is client-go's.
func TestLeavesNoWordOfTheLesson(t *testing.T) {
	root := repositoryRoot(t)
	lessons, err := lesson.All(root)
	require.NoError(t, err)
	found := 0
	for _, l := range lessons {
		source, err := read(l.Dir)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		found++
		var kept []string
		for _, r := range source.Replace {
			if r.Old == r.New {
				kept = append(kept, r.Old, "")
			}
		}
		_, own, _ := strings.Cut(l.Name(), "-")
		for name, text := range written(t, Options{Root: root, From: strings.TrimLeft(l.Name()[:2], "0"), Name: "pod-reaper"}) {
			text = strings.ToLower(strings.NewReplacer(kept...).Replace(name + "\n" + text))
			for _, word := range []string{"lesson", "chapter", "exercise", "example.com/controllers", "workshop-commit", own} {
				require.NotContains(t, text, word, "%s, from %s", name, l.Name())
			}
		}
	}
	require.NotZero(t, found)
}

// written writes a controller, and returns its files.
func written(t *testing.T, o Options) map[string]string {
	t.Helper()
	o.Dir = filepath.Join(t.TempDir(), "new")
	result, err := Write(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, o.Dir, result.Dir)
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(o.Dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(o.Dir)+"/")] = string(text)
		return err
	}))
	return files
}

// The commit is that of the repository in a directory, and not of one around it, in which an archive was unpacked.
func TestCommit(t *testing.T) {
	around := t.TempDir()
	for _, args := range [][]string{{"init", "--quiet"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "--message", "one"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = around
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") }), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	unpacked := filepath.Join(around, "unpacked")
	require.NoError(t, os.Mkdir(unpacked, 0o700))
	require.Regexp(t, "^[0-9a-f]{40,}$", commit(t.Context(), around))
	require.Empty(t, commit(t.Context(), unpacked))
	require.Empty(t, commit(t.Context(), t.TempDir()))
}

// The name, the package, the module and the rest are where they belong.
func TestNames(t *testing.T) {
	files := written(t, Options{Root: repositoryRoot(t), Name: "pod-reaper", Module: "github.com/me/reaper"})
	for file, wants := range map[string][]string{
		"go.mod":                    {"module github.com/me/reaper\n"},
		"controller.go":             {"package podreaper\n", "// Package podreaper is", `scheme.Scheme, "pod-reaper")`, `"k8s.io/client-go/util/workqueue"`},
		"cmd/pod-reaper/main.go":    {"// Program pod-reaper runs the controller.\n", "\n\tpodreaper \"github.com/me/reaper\"\n", `os.Stderr, "pod-reaper:"`, "podreaper.New(ctx"},
		"manifests/deployment.yaml": {"  name: pod-reaper\n  namespace: pod-reaper\n", "image: pod-reaper:dev\n", "serviceAccountName: pod-reaper\n", "app: pod-reaper\n"},
		"manifests/rbac.yaml":       {"kind: ServiceAccount\nmetadata:\n  name: pod-reaper\n  namespace: pod-reaper\n"},
		"torture/scenario.yaml":     {"account: pod-reaper\n", "package: ./cmd/pod-reaper\n"},
		"README.md":                 {"# pod-reaper\n", "cmd/pod-reaper/main.go"},
		".gitignore":                {"/pod-reaper\n"},
	} {
		for _, want := range wants {
			require.Contains(t, files[file], want, file)
		}
	}
	// With a package of the module's name, the import needs no name.
	files = written(t, Options{Root: repositoryRoot(t), Name: "reaper"})
	require.Contains(t, files["cmd/reaper/main.go"], "\n\t\"example.com/reaper\"\n")
}

// A definition that does not fit its lesson is an error.
func TestDefinition(t *testing.T) {
	const main = "package main\n\n// main of mini.\nfunc main() { println(\"mini\") }\n"
	for name, test := range map[string]struct{ definition, want string }{
		"right":                          {"copy: [go.mod, cmd]\nreplace: [{old: println(\"mini, new: println(\"mini}, {old: mini, new: '{name}'}]\n", ""},
		"an unknown key":                 {"copies: []\n", `unknown field "copies"`},
		"a file that does not exist":     {"copy: [go.mod, controller.go]\n", "controller.go: no such file"},
		"a word that is in no file":      {"copy: [go.mod, cmd]\nreplace: [{old: maxi, new: mini}]\n", `replaces "maxi", which is in none of its files`},
		"a result that is no Go program": {"copy: [go.mod, cmd]\nreplace: [{old: func, new: fun}]\n", "format cmd/mini/main.go"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range map[string]string{
				"01-mini/go.mod": "module example.com/mini\n", "01-mini/cmd/mini/main.go": main,
				"01-mini/_skeleton/skeleton.yaml": test.definition, "01-mini/_skeleton/files/notes/about-mini.md": "mini\n",
			} {
				path := filepath.Join(root, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			}
			if test.want != "" {
				_, err := Write(t.Context(), Options{Root: root, Name: "reaper", Dir: filepath.Join(t.TempDir(), "new")})
				require.ErrorContains(t, err, test.want)
				return
			}
			require.Equal(t, map[string]string{
				"go.mod": "module example.com/reaper\n", "notes/about-reaper.md": "reaper\n",
				"cmd/reaper/main.go": strings.Replace(main, "of mini", "of reaper", 1),
			}, written(t, Options{Root: root, Name: "reaper"}))
		})
	}
}

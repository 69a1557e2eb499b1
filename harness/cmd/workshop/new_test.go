package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
)

func TestNew(t *testing.T) {
	r := newRepository(t, "$ true")
	r.write("01-mini/go.mod", "module example.com/mini\n")
	r.write("01-mini/cmd/mini/main.go", "package main\n\nfunc main() {}\n")
	r.write("01-mini/_skeleton/skeleton.yaml", `
copy: [go.mod, cmd]
replace: [{old: mini, new: '{name}'}]
next: [{does: Run it, command: 'go run ./cmd/{name}'}]
`)
	r.write("01-mini/_skeleton/files/README.md", "# mini\n")
	r.write("02-other/README.md", "# A lesson without a skeleton\n")

	out, status := r.with(cluster.RootVariable+"=").workshop("", "new", "reaper", "--from", "1")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "A controller that works is in reaper; its README.md says what to change. Next:\n\n  cd reaper\n")
	require.Contains(t, out, " up; eval \"$(make -C ")
	require.Contains(t, out, "\n  # Run it.\n  go run ./cmd/reaper\n")
	text, err := os.ReadFile(filepath.Join(r.dir, "reaper", "README.md"))
	require.NoError(t, err)
	require.Equal(t, "# reaper\n", string(text))

	elsewhere := filepath.Join(t.TempDir(), "a", "b")
	out, status = r.with(cluster.RootVariable+"="+r.dir).workshop("", "new", "reaper", "--from", "1", "--dir", elsewhere, "--module", "github.com/me/reaper")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "\n  cd "+elsewhere+"\n")
	require.NotContains(t, out, "make -C", "the terminal has been set up")
	require.FileExists(t, filepath.Join(elsewhere, "cmd", "reaper", "main.go"))

	here := *r
	here.dir = filepath.Join(r.dir, "here")
	r.write("here/.git/HEAD", "a repository without commits")
	out, status = here.workshop("", "new", "reaper", "--from", "1", "--dir", ".")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "A controller that works is in this directory; its README.md says what to change. Next:\n\n")
	require.NotContains(t, out, "  cd ")
	require.FileExists(t, filepath.Join(here.dir, "go.mod"))

	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "give one name for the new controller, as in: make new my-controller (workshop new my-controller)"},
		{[]string{"a", "b", "--from", "1"}, "give one name for the new controller"},
		{[]string{"reaper", "--from", "1"}, "reaper is not empty, so nothing was written"},
		{[]string{"Reaper", "--from", "1"}, `a controller cannot be called "Reaper"`},
		{[]string{"other", "--from", "2"}, `there is no skeleton from lesson "2"; give --from the number of one that has a skeleton: 1 (01-mini)`},
		{[]string{"other", "--from", "1", "--module", "other"}, `a module cannot have the path "other"`},
	} {
		out, status = r.workshop("", append([]string{"new"}, test.args...)...)
		require.Equal(t, 1, status, "%s", out)
		require.Contains(t, out, test.want)
	}
	require.NoDirExists(t, filepath.Join(r.dir, "other"))
}

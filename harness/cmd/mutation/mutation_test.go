package main

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "go" { // Gremlins runs it, or what stands in for Gremlins
		os.Exit(goCommand(os.Args[1:]))
	}
	os.Exit(m.Run())
}

const code = `package tiny

import "errors"

type counter struct{ n int }

func (c *counter) add(n int) error {
	if n < 0 || n > 100 {
		return errors.New("out of range")
	}
	c.n += n
	return nil
}

var limit = 10 * 10
`

func TestAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.go")
	require.NoError(t, os.WriteFile(path, []byte(code), 0o600))
	s, err := readSource(path)
	require.NoError(t, err)
	for want, at := range map[string][2]int{
		"add: if n [<] 0 || n > 100 {": {8, 7},
		"add: if n < 0 [||] n > 100 {": {8, 11},
		"add: if n < 0 || n [>] 100 {": {8, 16},
		"add: c.n [+=] n":              {11, 6},
		"-: var limit = 10 [*] 10":     {15, 16},
	} {
		function, line := s.at(at[0], at[1])
		require.Equal(t, want, function+": "+line)
	}
}

func TestParseExplanations(t *testing.T) {
	got, err := parseExplanations("# comment\n\na.go | f | INVERT_LOGICAL | if a [||] b { | equivalent: c is d\nb.go | - | ARITHMETIC_BASE | x = 1 [<<] y | 2 | it is a flag\n")
	require.NoError(t, err)
	require.Equal(t, []explanation{
		{key{"a.go", "f", "INVERT_LOGICAL", "if a [||] b {"}, 3, true},
		{key{"b.go", "-", "ARITHMETIC_BASE", "x = 1 [<<] y | 2"}, 4, false},
	}, got)

	for _, line := range []string{"a.go | f | INVERT_LOGICAL | if a [||] b {", "a.go | f | INVERT_LOGICAL | if a [||] b { | ", "a.go:8 because"} {
		_, err := parseExplanations("\n" + line)
		require.ErrorContains(t, err, "line 2 ", line)
	}
}

func TestMatch(t *testing.T) {
	a, b := key{"a.go", "f", "M", "if err [!=] nil {"}, key{"a.go", "g", "M", "if err [!=] nil {"}
	mutants := func(statuses ...status) []mutant {
		var all []mutant
		for i, s := range statuses {
			all = append(all, mutant{a, i, s})
		}
		return all
	}
	tests := map[string]struct {
		mutants     []mutant
		explained   []key
		unexplained []int // numbers of the mutants
		stale       int
	}{
		"all are caught":                     {mutants: mutants(killed, timedOut, notViable)},
		"one survives":                       {mutants: mutants(killed, lived), unexplained: []int{1}},
		"it is explained":                    {mutants: mutants(killed, lived), explained: []key{a}},
		"another one is":                     {mutants: mutants(lived), explained: []key{b}, unexplained: []int{0}, stale: 1},
		"a caught one is":                    {mutants: mutants(killed), explained: []key{a}, stale: 1},
		"one that hangs is":                  {mutants: mutants(timedOut), explained: []key{a}, stale: 1},
		"an explanation is for one":          {mutants: mutants(lived, lived, lived), explained: []key{a, a}, unexplained: []int{2}},
		"more explanations than survivors":   {mutants: mutants(lived), explained: []key{a, a}, stale: 1},
		"an explanation for a line now gone": {explained: []key{a}, stale: 1},
		"the whole file is explained":        {mutants: mutants(lived, killed, lived), explained: []key{wholeFile("a.go")}},
		"another file is":                    {mutants: mutants(lived), explained: []key{wholeFile("b.go")}, unexplained: []int{0}, stale: 1},
		"a file in which all are caught is":  {mutants: mutants(killed), explained: []key{wholeFile("a.go")}, stale: 1},
		"a file and one of its lines are":    {mutants: mutants(lived), explained: []key{wholeFile("a.go"), a}, stale: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var explanations []explanation
			for _, k := range test.explained {
				explanations = append(explanations, explanation{mutant: k})
			}
			unexplained, stale := match(test.mutants, explanations)
			var numbers []int
			for _, m := range unexplained {
				numbers = append(numbers, m.number)
			}
			require.Equal(t, test.unexplained, numbers)
			require.Len(t, stale, test.stale)
			err := report(&strings.Builder{}, "survivors.txt", outcome{mutants: test.mutants}, explanations)
			require.Equal(t, len(unexplained)+len(stale) > 0, err != nil, "%v", err)
		})
	}
}

// Of four mutants that compile, two are caught, and no test can catch a third.
func TestScore(t *testing.T) {
	at := func(line string) key { return key{"a.go", "f", "M", line} }
	mutants := []mutant{{at("1"), 1, killed}, {at("2"), 2, timedOut}, {at("3"), 3, lived}, {at("4"), 4, lived}, {at("5"), 5, notViable}}
	explanations, err := parseExplanations("a.go | f | M | 3 | equivalent: both are 0\na.go | f | M | 4 | nobody reads it\na.go | f | M | 6 | equivalent, once")
	require.NoError(t, err)
	var out strings.Builder
	require.Error(t, report(&out, "survivors.txt", outcome{mutants: mutants}, explanations))
	require.Contains(t, out.String(), "That is 66 % of those that are not equivalent to the code.")
	require.NoError(t, report(&out, "survivors.txt", outcome{}, nil))
}

// The program stands in for Gremlins. It runs the go command as that does, with the coverage first, and then the tests of
// the code, of code with a bug, and of code that does not compile.
const standIn = `#!/bin/sh
set -e
while [ $# -gt 0 ]; do
	if [ "$1" = --output ]; then output=$2; fi
	last=$1; shift
done
try() {
	if go test -timeout 1m -failfast example.com/wrong >/dev/null; then status=0; else status=$?; fi
	echo "$status" >>"$HOME/../statuses"
}
go mod download
go test -cover -coverprofile "$HOME/../profile" ./...
cd "$last"
try
sed -i.old 's/n > 100/n > 1000/' tiny.go && try
sed -i.old 's/n > 1000/n +/' tiny.go && try
mv tiny.go.old tiny.go
cp "$HOME/../statuses" "$HOME/../profile" .
cat >"$output" <<END
{"files":[{"file_name":"tiny.go","mutations":[
	{"line":8,"column":16,"type":"CONDITIONALS_NEGATION","status":"KILLED"},{"line":8,"column":7,"type":"CONDITIONALS_BOUNDARY","status":"LIVED"}]}]}
END
`

func TestRunGremlins(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/tiny\n\ngo 1.26.0\n", "tiny.go": code, "tinytest/tinytest.go": "package tinytest\n",
		"zz_generated.go": "// Code generated by hand. DO NOT EDIT.\n\npackage tiny\n",
		"tiny_test.go":    "package tiny\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif new(counter).add(101) == nil {\n\t\tt.Error()\n\t}\n}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	gremlins := filepath.Join(t.TempDir(), "gremlins")
	require.NoError(t, os.WriteFile(gremlins, []byte(standIn), 0o700))

	g := runner{gremlins: gremlins, only: regexp.MustCompile("")}
	found, err := g.run(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, outcome{mutants: []mutant{
		{key{"tiny.go", "add", "CONDITIONALS_NEGATION", "if n < 0 || n [>] 100 {"}, 8, killed},
		{key{"tiny.go", "add", "CONDITIONALS_BOUNDARY", "if n [<] 0 || n > 100 {"}, 8, lived},
	}}, found)
	statuses, err := os.ReadFile(filepath.Join(dir, "statuses"))
	require.NoError(t, err)
	require.Equal(t, "0\n1\n2\n", string(statuses), "of tests that succeed, fail, and do not compile")
	profile, err := os.ReadFile(filepath.Join(dir, "profile"))
	require.NoError(t, err)
	require.Contains(t, string(profile), "tiny.go:1.1,1000000.1000000 1 1\n", "the whole file is covered")

	found, err = runner{gremlins: "/nowhere", only: regexp.MustCompile("^other")}.run(t.Context(), dir)
	require.NoError(t, err, "there is no such file, so Gremlins does not run")
	require.Empty(t, found)
	found, err = runner{gremlins: "/nowhere", only: regexp.MustCompile(""), until: time.Now().Add(-time.Second)}.run(t.Context(), dir)
	require.NoError(t, err, "there is no time, so Gremlins does not run")
	require.Equal(t, outcome{notBegun: 1}, found)
}

func TestParseDiff(t *testing.T) {
	require.Equal(t, map[string][]lineRange{
		"a.go":     {{3, 3}, {10, 12}},
		"b c.go":   {{1, 2}},
		"sub/d.go": {{8, 8}},
	}, parseDiff(`diff --git a.go a.go
index 1..2 100644
--- a.go
+++ a.go
@@ -3 +3 @@ func f() {
-	a
+	b
@@ -9,0 +10,3 @@
+	c
+++ not.go
+@@ -1 +1 @@
@@ -20,2 +22,0 @@
-	gone
-	gone
diff --git b c.go b c.go
new file mode 100644
--- /dev/null
+++ b c.go	
@@ -0,0 +1,2 @@
+x
+y
diff --git sub/d.go sub/d.go
--- sub/d.go
+++ sub/d.go
@@ -7,2 +8 @@
-x
-y
+z
`))
}

// After the deadline, the go command says at once that the package does not compile.
func TestNoteIfLate(t *testing.T) {
	notes := filepath.Join(t.TempDir(), "late")
	t.Setenv(lateFile, notes)
	t.Setenv(realGo, "/nowhere")
	for _, test := range []struct {
		until        string
		status, late int
	}{
		{"", 1, 0}, {"4000000000", 1, 0}, {"1", 2, 1}, {"1", 2, 2}, {"soon", 1, 2},
	} {
		t.Setenv(deadline, test.until)
		require.Equal(t, test.status, goCommand([]string{"test", "-timeout", "1m", "x"}))
		text, err := os.ReadFile(notes)
		require.Equal(t, test.late == 0, errors.Is(err, fs.ErrNotExist))
		require.Equal(t, test.late, strings.Count(string(text), "\n"))
	}
}

// history makes a repository with one commit, and returns its directory and a function that writes a file there.
func history(t *testing.T, files map[string]string) (dir string, write func(name, text string)) {
	dir = t.TempDir()
	git := func(args ...string) {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") }), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	write = func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	git("init", "--quiet")
	for name, text := range files {
		write(name, text)
	}
	git("add", ".")
	git("commit", "--quiet", "--message", "first")
	return dir, write
}

// What has changed since a commit, in one directory of a repository; a file that git does not track has changed as a whole.
func TestChanges(t *testing.T) {
	dir, write := history(t, map[string]string{"module/tiny.go": code, "module/same.go": "package tiny\n", "other/x.go": "package x\n"})
	write("module/tiny.go", strings.NewReplacer("n > 100", "n > 10", "10 * 10", "9 * 9").Replace(code))
	write("module/sub/new.go", "package sub\n")
	write("other/x.go", "package y\n")
	got, err := changes(t.Context(), filepath.Join(dir, "module"), "HEAD")
	require.NoError(t, err)
	require.Equal(t, map[string][]lineRange{"tiny.go": {{8, 8}, {15, 15}}, "sub/new.go": {everyLine}}, got)
	_, err = changes(t.Context(), dir, "no-such-commit")
	require.ErrorContains(t, err, "no-such-commit")
}

func TestWrongInput(t *testing.T) {
	for args, want := range map[string]string{
		"":                               "usage: ",
		"--gremlins g":                   "usage: ",
		"--gremlins g --only ( .":        "--only: ",
		"--gremlins g --budget -1s .":    "--budget is -1s",
		"--gremlins g --budget soon .":   "invalid value",
		"--gremlins g /nowhere":          "/nowhere/survivors.txt",
		"--gremlins g --since nowhere .": "--since nowhere: . is in no Git repository that has such a commit",
	} {
		require.ErrorContains(t, run(t.Context(), t.Output(), strings.Fields(args)), want, args)
	}
}

// With a part of the mutants, the explanations of the others say nothing.
func TestExplainsOneOf(t *testing.T) {
	a := key{"a.go", "f", "M", "if err [!=] nil {"}
	require.True(t, explanation{mutant: a}.explainsOneOf([]mutant{{a, 1, killed}, {a, 2, lived}}))
	require.False(t, explanation{mutant: a}.explainsOneOf([]mutant{{a, 1, killed}}), "the other such line may survive, but was not run")
	require.False(t, explanation{mutant: a}.explainsOneOf([]mutant{{key{"a.go", "g", "M", a.line}, 1, lived}}))
	require.True(t, explanation{mutant: wholeFile("a.go")}.explainsOneOf([]mutant{{a, 1, lived}}))
	require.False(t, explanation{mutant: wholeFile("a.go")}.explainsOneOf([]mutant{{a, 1, killed}}))
	require.False(t, explanation{mutant: wholeFile("b.go")}.explainsOneOf([]mutant{{a, 1, lived}}))
}

// The program stands in for Gremlins, too: it says what became of three mutants, and keeps the profile. If it is to be late, the last one
// comes after the deadline.
const shortStandIn = `#!/bin/sh
set -e
while [ $# -gt 0 ]; do
	if [ "$1" = --output ]; then output=$2; fi
	last=$1; shift
done
printf '%s' "$MUTATION_PROFILE" >"$last/profile"
status=KILLED
if [ -e "$last/wait" ]; then
	export MUTATION_UNTIL=1
	if go test -timeout 1m -failfast example.com/late; then exit 1; fi
	status='NOT VIABLE'
fi
cat >"$output" <<END
{"files":[{"file_name":"tiny.go","mutations":[
	{"line":11,"column":6,"type":"M","status":"NOT COVERED"},{"line":8,"column":7,"type":"M","status":"LIVED"},{"line":8,"column":16,"type":"M","status":"$status"}]}]}
END
`

func TestRun(t *testing.T) {
	const explained = "tiny.go | add | M | if n [<] 0 || n > 100 { | nobody needs it\n"
	gremlins := filepath.Join(t.TempDir(), "gremlins")
	require.NoError(t, os.WriteFile(gremlins, []byte(shortStandIn), 0o700))
	dir, write := history(t, map[string]string{"go.mod": "module example.com/tiny\n\ngo 1.26.0\n", "tiny.go": code, "survivors.txt": explained})
	play := func(flags ...string) (string, error) {
		var out strings.Builder
		err := run(t.Context(), &out, append([]string{"--gremlins", gremlins}, append(flags, dir)...))
		return out.String(), err
	}
	out, err := play()
	require.NoError(t, err)
	require.Contains(t, out, "2 mutants: 1 caught, and 0 that made the tests hang; 1 survived, 1 of them explained")
	require.NotContains(t, out, "The time was up")

	// What has not changed is not run, so nothing is said of its explanations.
	const another = "tiny.go | add | M | c.n [+=] n | no such survivor\n"
	write("survivors.txt", explained+another)
	_, err = play()
	require.EqualError(t, err, "0 survivors without an explanation, 1 explanations without a survivor")
	out, err = play("--since", "HEAD")
	require.NoError(t, err)
	require.Equal(t, dir+": no operator in what has changed since HEAD\n", out)
	require.NoError(t, os.Remove(filepath.Join(dir, "profile")))
	write("tiny.go", strings.Replace(code, "n < 0", "n < 2", 1))
	_, err = play("--since", "HEAD")
	require.EqualError(t, err, "1 survivors without an explanation, 0 explanations without a survivor", "the line is another one")
	profile, err := os.ReadFile(filepath.Join(dir, "profile"))
	require.NoError(t, err)
	require.Equal(t, "tiny.go:8.1,8.1000000 1 1\n", string(profile))

	// Without the time for some, nothing is said of the others' explanations, either.
	write("tiny.go", code)
	_, err = play("--budget", "1h")
	require.EqualError(t, err, "0 survivors without an explanation, 1 explanations without a survivor")
	write("wait", "")
	out, err = play("--budget", "1h")
	require.NoError(t, err)
	require.Contains(t, out, "1 mutants: 0 caught, and 0 that made the tests hang; 1 survived, 1 of them explained")
	require.Contains(t, out, "The time was up before 1 more, and before 0 whole packages")
	out, err = play("--budget", "1ns", "--since", "HEAD~0")
	require.NoError(t, err)
	require.Equal(t, dir+": no operator in what has changed since HEAD~0\n", out)
	out, err = play("--budget", "1ns")
	require.NoError(t, err)
	require.Contains(t, out, "The time was up before 0 more, and before 1 whole packages")
	write("tiny.go", strings.Replace(code, "n < 0", "n < 2", 1))
	_, err = play("--budget", "1h", "--since", "HEAD")
	require.EqualError(t, err, "1 survivors without an explanation, 0 explanations without a survivor", "one was run, one was not")
	write("sub/new.go", "package sub\n")
	out, err = play("--budget", "1ns", "--since", "HEAD")
	require.NoError(t, err)
	require.Contains(t, out, "The time was up before 0 more, and before 2 whole packages")

	// Tests that need what is around the module say nothing of a mutant.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "sub")))
	write("around_test.go", "package tiny\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestAround(t *testing.T) {\n\tif _, err := os.Stat(\"../"+filepath.Base(dir)+"\"); err != nil {\n\t\tt.Error(err)\n\t}\n}\n")
	out, err = play("--since", "HEAD")
	require.NoError(t, err)
	require.Contains(t, out, "Not tried, because tests fail where mutants run: example.com/tiny.")

	// Tests that fail anyway are an error, however little of the package has changed.
	write("around_test.go", "package tiny\n\nimport \"testing\"\n\nfunc TestFails(t *testing.T) { t.Error(\"it fails\") }\n")
	_, err = play("--since", "HEAD")
	require.ErrorContains(t, err, "the tests of example.com/tiny fail without a mutant: ")
	require.ErrorContains(t, err, "it fails")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, run(ctx, t.Output(), []string{"--gremlins", gremlins, dir, dir}), context.Canceled)
}

// Of a package, the lines are mutated that have changed, in files that are neither generated nor left out by --only.
func TestChoose(t *testing.T) {
	dir := t.TempDir()
	p := goPackage{Dir: dir, ImportPath: "example.com/tiny"}
	for name, text := range map[string]string{
		"a.go": "package tiny\n", "b.go": "package tiny\n", "c.go": "// Code generated by hand. DO NOT EDIT.\n\npackage tiny\n", "d.go": "package tiny\n", "e.go": "package tiny\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		p.GoFiles = append(p.GoFiles, name)
	}
	slices.Sort(p.GoFiles)
	changed := map[string][]lineRange{"sub/b.go": {{1, 2}, {7, 7}}, "sub/c.go": {{1, 1}}, "sub/d.go": {{3, 3}}, "sub/e.go": {{4, 4}}, "a.go": {{5, 5}}}
	g := runner{only: regexp.MustCompile("^sub/[a-d]")}
	c, err := g.choose(p, "sub", changed)
	require.NoError(t, err)
	require.Equal(t, "b.go:1.1,2.1000000 1 1\nb.go:7.1,7.1000000 1 1\nd.go:3.1,3.1000000 1 1\n", c.profile)
	require.Equal(t, []string{"b.go", "d.go"}, slices.Sorted(maps.Keys(c.sources)))
	for _, name := range []string{"a", "c", "e"} {
		require.Contains(t, c.args, "^"+name+`\.go$`)
	}
	c, err = g.choose(p, "sub", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a.go", "b.go", "d.go"}, slices.Sorted(maps.Keys(c.sources)))
	p.GoFiles = []string{"gone.go"}
	_, err = g.choose(p, "sub", nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestLeaveOut(t *testing.T) {
	for _, test := range []struct{ late, left, notTried int }{{0, 3, 1}, {1, 2, 2}, {2, 1, 3}} {
		o := outcome{mutants: []mutant{{status: notViable}, {status: killed}, {status: notViable}}, notTried: 1}
		o.leaveOut(test.late)
		require.Len(t, o.mutants, test.left)
		require.Equal(t, test.notTried, o.notTried)
	}
}

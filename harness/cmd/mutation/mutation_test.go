package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
			err := report(&strings.Builder{}, "survivors.txt", test.mutants, explanations)
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
	require.Error(t, report(&out, "survivors.txt", mutants, explanations))
	require.Contains(t, out.String(), "That is 66 % of those that are not equivalent to the code.")
	require.NoError(t, report(&out, "survivors.txt", nil, nil))
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

	mutants, err := runGremlins(t.Context(), gremlins, dir, regexp.MustCompile(""))
	require.NoError(t, err)
	require.Equal(t, []mutant{
		{key{"tiny.go", "add", "CONDITIONALS_NEGATION", "if n < 0 || n [>] 100 {"}, 8, killed},
		{key{"tiny.go", "add", "CONDITIONALS_BOUNDARY", "if n [<] 0 || n > 100 {"}, 8, lived},
	}, mutants)
	statuses, err := os.ReadFile(filepath.Join(dir, "statuses"))
	require.NoError(t, err)
	require.Equal(t, "0\n1\n2\n", string(statuses), "of tests that succeed, fail, and do not compile")
	profile, err := os.ReadFile(filepath.Join(dir, "profile"))
	require.NoError(t, err)
	require.Contains(t, string(profile), "tiny.go:1.1,1000000.1 1 1\n", "the whole file is covered")

	mutants, err = runGremlins(t.Context(), "/nowhere", dir, regexp.MustCompile("^other"))
	require.NoError(t, err, "there is no such file, so Gremlins does not run")
	require.Empty(t, mutants)
}

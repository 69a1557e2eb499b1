package play

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// write writes a page, whose fences are marked with ”' , and returns its path.
func write(t testing.TB, page string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "README.md")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(page, "'''", "```")), 0o600))
	return path
}

func TestNodes(t *testing.T) {
	page, err := Read(write(t, "# Title\n\n<!-- nodes: 10 -->\n\nProse.\n"))
	require.NoError(t, err)
	require.Equal(t, 10, page.Nodes)
	require.Equal(t, "# Title\n\n\n\nProse.", page.Parts[0].Prose)
	page, err = Read(write(t, "Prose with `<!-- nodes: 10 -->` in it.\n"))
	require.NoError(t, err)
	require.Zero(t, page.Nodes)
}

func TestOwnCluster(t *testing.T) {
	page, err := Read(write(t, "# Title\n\n<!-- cluster: own -->\n\nProse.\n"))
	require.NoError(t, err)
	require.True(t, page.OwnCluster)
	require.Equal(t, "# Title\n\n\n\nProse.", page.Parts[0].Prose)
	page, err = Read(write(t, "Prose with `<!-- cluster: own -->` in it.\n"))
	require.NoError(t, err)
	require.False(t, page.OwnCluster)
}

func TestRead(t *testing.T) {
	path := write(t, `# Title

Some prose.

'''console
$ first
out
$ second \
> goes on

a line after an empty one
'''

More prose, with code that is not run:

'''sh
$ rm -rf /
'''

- an item

  '''console
  $ in an item &
  log | line
  '''

'''console
'''
The end.
`)
	page, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, 3, page.Commands())
	require.Equal(t, filepath.Dir(path), page.Dir())
	var prose []string
	var steps []Step
	for _, part := range page.Parts {
		if part.Prose != "" {
			prose = append(prose, part.Prose)
		}
		steps = append(steps, part.Steps...)
	}
	require.Equal(t, []Step{
		{Line: 6, Command: "first", Expect: []string{"out"}},
		{Line: 8, Command: "second \\\ngoes on", Expect: []string{"", "a line after an empty one"}},
		{Line: 23, Command: "in an item", Background: true, Expect: []string{"log | line"}},
	}, steps)
	require.Equal(t, []string{
		"# Title\n\nSome prose.",
		"More prose, with code that is not run:\n\n```sh\n$ rm -rf /\n```\n\n- an item",
		"The end.",
	}, prose)
}

func TestReadRefuses(t *testing.T) {
	_, err := Read(filepath.Join(t.TempDir(), "nothing.md"))
	require.ErrorIs(t, err, os.ErrNotExist)

	_, err = Read(write(t, "'''console\nno command\n'''\n"))
	require.ErrorContains(t, err, "README.md:2: a console block must begin with a command")
}

func TestReadChecksQuotedCode(t *testing.T) {
	quote := func(code string) error {
		path := write(t, "'''go code.go\n"+code+"\n'''\n")
		source := "package code\n\nfunc first() {\n\treturn\n}\n\nfunc second() {}\n"
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "code.go"), []byte(source), 0o600))
		_, err := Read(path)
		return err
	}
	require.NoError(t, quote("func first() {\n\treturn\n}"))
	require.NoError(t, quote("func first() {\n  // ...\n}\n...\nfunc second() {}"))
	require.ErrorContains(t, quote("func first() {\n\tpanic(1)\n}"), "the page quotes what is not in code.go:\n  func first() {\n  panic(1)")
	require.ErrorContains(t, quote("func second() {}\n...\nfunc first() {"), "the page quotes what is not in code.go")
	require.ErrorContains(t, quote("func second() {}\n...\nfunc second() {}"), "the page quotes what is not in code.go", "it is there once")
	require.ErrorContains(t, quote("func first() {\n\treturn\n...\n\treturn\n}"), "the page quotes what is not in code.go", "pieces do not overlap")

	_, err := Read(write(t, "'''go missing.go\npackage x\n'''\n"))
	require.ErrorContains(t, err, "README.md:1: the page quotes missing.go")
}

func TestReadChecksQuotedDiffs(t *testing.T) {
	quote := func(diff string) error {
		path := write(t, "'''diff old.go new.go\n"+diff+"\n'''\n")
		for file, source := range map[string]string{
			"old.go": "package code\n\nfunc both() {\n\told()\n}\n\nfunc last() {}\n",
			"new.go": "package code\n\nimport \"x\"\n\nfunc both() {\n\tnew()\n}\n\nfunc last() {}\n",
		} {
			require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), file), []byte(source), 0o600))
		}
		_, err := Read(path)
		return err
	}
	require.NoError(t, quote(" func both() {\n-\told()\n+\tnew()\n }"))
	require.NoError(t, quote(" func both() {\n-\told()\n+\tnew()\n }\n\n func last() {}"), "an empty line of both")
	require.ErrorContains(t, quote(" func both() {\n-\told()\n+\tnew()\n }\n func last() {}"), "not in old.go", "an empty line that is left out")
	require.NoError(t, quote("+import \"x\"\n...\n func both() {\n...\n }"))
	require.ErrorContains(t, quote("-\tnew()"), "not in old.go")
	require.ErrorContains(t, quote("+\told()"), "not in new.go")
	require.ErrorContains(t, quote(" import \"x\""), "not in old.go")
	require.ErrorContains(t, quote(" func both() {\n }"), "not in old.go", "a gap that is not marked")
}

// A reader who has changed the code that a page quotes sees that code on the page, and can go on.
func TestReadEditedShowsTheReadersOwnCode(t *testing.T) {
	const source = `package code

// first is the first.
func first() {
	println("mine")
	return
}

func (c *Controller) run() error {
	prepareEverything()
	log("mine")
	startTheWorkers()
	return nil
}

type Controller struct {
	mine int
}
`
	for name, test := range map[string]struct{ info, quote, want string }{
		"a function":              {"go code.go", "func first() {\n\treturn\n}", "You have changed code.go; this is your code:*\n\n```go\nfunc first() {\n\tprintln(\"mine\")\n\treturn\n}\n```"},
		"its comment too":         {"go code.go", "// first is it.\nfunc first() {\n\t...\n}", "```go\n// first is the first.\nfunc first() {"},
		"the start of a function": {"go code.go", "func first() {\n\tprintln(1)", "```go\nfunc first() {\n\tprintln(\"mine\")\n\treturn\n}\n```"},
		"a method and a type":     {"go code.go", "type Controller struct{}\n...\nfunc (c *Controller) run() {}", "type Controller struct {\n\tmine int\n}\n\nfunc (c *Controller) run() error {"},
		"a part of a function":    {"go code.go", "\tprepareEverything()\n\tstartTheWorkers()", "```go\n\tprepareEverything()\n\tlog(\"mine\")\n\tstartTheWorkers()\n```"},
		"what is gone":            {"go code.go", "func second() {}", "this is what the page quotes. Yours is in that file:*\n\n```go code.go\nfunc second() {}\n```"},
		"a missing file":          {"go gone.go", "func first() {}", "There is no gone.go any more; this is what the page quotes:*\n\n```go gone.go\nfunc first() {}\n```"},
		"another language":        {"yaml x.yaml", "name: x", "this is what the page quotes. Yours is in that file:*\n\n```yaml x.yaml\nname: x\n```"},
		"a difference":            {"diff code.go x.yaml", "-func first() {\n+y", "You have changed code.go or x.yaml; this is what the page quotes:*\n\n```diff code.go x.yaml\n-func first() {\n+y\n```"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "Before.\n\n'''"+test.info+"\n"+test.quote+"\n'''\n\nAfter.\n\n'''console\n$ true\n'''\n")
			for file, text := range map[string]string{"code.go": source, "x.yaml": "name: y\n"} {
				require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), file), []byte(text), 0o600))
			}
			_, err := Read(path)
			require.Error(t, err, "the tests insist")

			page, err := ReadEdited(path)
			require.NoError(t, err)
			require.Len(t, page.Edited, 1)
			require.ErrorContains(t, page.Edited[0], "README.md:3: the page quotes ")
			require.Len(t, page.Parts, 2)
			prose := page.Parts[0].Prose
			require.Contains(t, prose, test.want)
			require.True(t, strings.HasPrefix(prose, "Before.\n\n*") && strings.HasSuffix(prose, "```\n\nAfter."), "%s", prose)
			require.Equal(t, 1, page.Commands())
		})
	}
}

func TestJobName(t *testing.T) {
	for command, want := range map[string]string{
		"naive-loop":                              "naive-loop",
		"./bin/naive-loop --interval 1s":          "naive-loop",
		"NODE_NAME=x go run ./cmd/naive-loop --x": "naive-loop",
		"go run -race ./cmd/naive-loop":           "naive-loop",
		"X=1":                                     "X=1",
		"workshop proxy --out x":                  "proxy",
	} {
		require.Equal(t, want, jobName(command), command)
	}
}

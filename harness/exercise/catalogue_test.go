package exercise_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/exercise"
	"example.com/controllers/harness/exercise/verdict"
)

func TestFind(t *testing.T) {
	c := newCatalogue(t, "01-add", "02-add-later", "10-subtract")
	for name, want := range map[string]string{
		"02-add-later": "02-add-later", "2": "02-add-later", "02": "02-add-later", "10": "10-subtract", "sub": "10-subtract", "later": "02-add-later",
		"exercises/my/01-add": "01-add", "exercises/01-add/": "01-add", "my/01-add": "01-add",
	} {
		e, err := c.Find(name)
		require.NoError(t, err, name)
		require.Equal(t, want, e.Name, name)
	}
	_, err := c.Find("add")
	require.EqualError(t, err, `"add" may be any of 01-add, 02-add-later`)
	_, err = c.Find("multiply")
	require.ErrorContains(t, err, `there is no exercise "multiply"`)
}

func TestCopyAndReset(t *testing.T) {
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	require.False(t, e.HasCopy())
	made, err := e.Copy()
	require.NoError(t, err)
	require.True(t, made)
	require.False(t, e.IsChanged())
	page, err := os.ReadFile(filepath.Join(e.Mine, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "](../../../01-naive-loop/README.md)", "the link leads to the same file from the copy")
	require.Equal(t, []string{"README.md", "controller.go"}, names(t, e.Mine), "neither the grader nor the solution")

	before := e.Fingerprint()
	write(t, filepath.Join(e.Mine, "controller.go"), "package small")
	write(t, filepath.Join(e.Mine, "notes.txt"), "mine")
	require.NotEqual(t, before, e.Fingerprint())
	inSubpackage := e.Fingerprint()
	write(t, filepath.Join(e.Mine, "sub", "sub.go"), "package sub")
	require.NotEqual(t, inSubpackage, e.Fingerprint(), "it may have packages of its own")
	inSubpackage = e.Fingerprint()
	write(t, filepath.Join(e.Mine, ".git", "hidden.go"), "package hidden")
	write(t, filepath.Join(e.Mine, "sub", "_old", "old.go"), "package old")
	require.Equal(t, inSubpackage, e.Fingerprint(), "the go command leaves these out")
	require.True(t, e.IsChanged())
	made, err = e.Copy()
	require.NoError(t, err)
	require.False(t, made, "a copy is not replaced")
	require.True(t, e.IsChanged())

	require.NoError(t, e.Reset())
	require.Equal(t, before, e.Fingerprint())
	require.False(t, e.IsChanged())
	require.Equal(t, []string{"README.md", "controller.go"}, names(t, e.Mine), "a reset is exact")
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestShowSolution(t *testing.T) {
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	write(t, filepath.Join(e.Dir, "other.go"), "package small\n")
	_, err := e.Copy()
	require.NoError(t, err)
	before := e.Fingerprint()
	dir, err := e.ShowSolution()
	require.NoError(t, err)
	require.Equal(t, []string{"controller.go", "other.go"}, names(t, dir), "the whole package, so that an editor can compile it")
	solution, err := os.ReadFile(filepath.Join(dir, "controller.go"))
	require.NoError(t, err)
	require.Equal(t, solved, string(solution))
	require.Equal(t, before, e.Fingerprint(), "the solution is no change of the participant's code")
}

func TestProgress(t *testing.T) {
	c := newCatalogue(t, "01-add", "02-more", "03-most")
	p, err := c.ReadProgress()
	require.NoError(t, err)
	e, done := p.CurrentOf(c)
	require.Equal(t, "01-add", e.Name)
	require.False(t, done)

	another, err := c.ReadProgress() // another process
	require.NoError(t, err)
	require.NoError(t, another.Update(func(p *exercise.Progress) { p.Pass(c.Exercises[0], time.Date(2026, 1, 2, 15, 4, 5, 6, time.UTC)) }))
	require.NoError(t, p.Update(func(p *exercise.Progress) { p.Hints["02-more"] = 2 }))
	require.Equal(t, 1, p.Count(c))
	text, err := os.ReadFile(filepath.Join(c.Dir, "my", "progress.yaml"))
	require.NoError(t, err)
	require.Equal(t, `# Kept by "make exercise". Delete this file to start over; your code stays.
helped:
  01-add: 0
hints:
  02-more: 2
passed:
  01-add: "2026-01-02T15:04:05Z"
`, string(text))

	p, err = c.ReadProgress()
	require.NoError(t, err)
	require.Equal(t, 1, p.Count(c))
	e, _ = p.CurrentOf(c)
	require.Equal(t, "02-more", e.Name)
	p.Current = "03-most"
	e, _ = p.CurrentOf(c)
	require.Equal(t, "03-most", e.Name)
	p.Current = "04-gone"
	for _, e := range c.Exercises {
		p.Pass(e, time.Now())
	}
	_, done = p.CurrentOf(c)
	require.True(t, done)
	require.Equal(t, 3, p.Count(c))
	solved, about := p.Marks(c.Exercises[1])
	require.True(t, solved)
	require.Equal(t, []string{"with 2 hints"}, about)
	p.Again(c.Exercises[1])
	solved, about = p.Marks(c.Exercises[1])
	require.True(t, solved, "what was solved stays solved")
	require.Equal(t, []string{"with 2 hints"}, about)
	require.Zero(t, p.Hints["02-more"])
	p.Pass(c.Exercises[1], time.Now())
	_, about = p.Marks(c.Exercises[1])
	require.Equal(t, []string{"with 2 hints"}, about, "the first time counts")
	e = exercise.Exercise{Name: "54-new", About: exercise.About{Write: true, Cluster: true}}
	p.Hints[e.Name] = 1
	solved, about = p.Marks(e)
	require.False(t, solved)
	require.Equal(t, []string{"write", "needs the control plane"}, about)
	p.Pass(e, time.Now())
	_, about = p.Marks(e)
	require.Equal(t, []string{"write", "needs the control plane", "with a hint"}, about)

	write(t, filepath.Join(c.Dir, "my", "progress.yaml"), "passed: 7")
	_, err = c.ReadProgress()
	require.ErrorContains(t, err, "repair it, or delete it")
}

// Problems finds what an author may forget.
func TestProblems(t *testing.T) {
	tests := map[string]struct {
		file, text string // "" removes the file
		want       string
	}{
		"nothing":          {"controller.go", shipped, ""},
		"no page":          {"README.md", "", "there is no README.md"},
		"another title":    {"README.md", "# It adds\n", `README.md must begin with "# It subtracts"`},
		"an orphan":        {"notes.txt", "x", "nothing uses the file notes.txt"},
		"no explanation":   {"why.md", "", "there is no why.md"},
		"two hints":        {"hints.md", "## 1\n\nx\n\n## 2\n\ny\n", "2 hints instead of 3"},
		"an empty hint":    {"hints.md", "## 1\n\nx\n\n## 2\n\n## 3\n\ny\n", "is empty"},
		"a hint too much":  {"hints.md", "## 1\n\nx\n\n## 2\n\ny\n\n## 3\n\nWrite `func Add(a, b int) int {  return a + b }`.\n", "hint 3 gives away the line"},
		"the same code":    {".solution/controller.go", shipped, ".solution/controller.go is the same as controller.go"},
		"no reason":        {"exercise.yaml", "title: It subtracts\nlesson: 1\n", "why the exercise fails"},
		"an eighth lesson": {"exercise.yaml", "title: It subtracts\nlesson: 8\nfails: x\n", "a lesson from 1 to 6"},
		"no golden file":   {"failure.golden", "", "there is no failure.golden"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCatalogue(t, "01-add")
			path := filepath.Join(c.Exercises[0].Dir, test.file)
			if test.text == "" {
				require.NoError(t, os.Remove(path))
			} else {
				write(t, path, test.text)
			}
			c, err := exercise.Open(c.Root)
			require.NoError(t, err)
			got := errors.Join(c.Exercises[0].Problems()...)
			if test.want == "" {
				require.NoError(t, got)
				return
			}
			require.ErrorContains(t, got, test.want)
		})
	}
}

func TestCompareGolden(t *testing.T) {
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	v := exercise.Result{Exercise: e.Name, Verdict: exercise.Failed, Message: "The Pod was deleted 3 times.", Scene: "a Pod", Timeline: []verdict.Line{
		{At: 1500 * time.Millisecond, Who: "controller", What: "delete pod a"},
		{At: 1600 * time.Millisecond, Who: "event", What: "DELETED pod a"},
	}}
	require.NoError(t, e.UpdateGolden(v))
	require.NoError(t, e.CompareGolden(v))

	same := v
	same.Message = "The Pod was deleted 4 times."
	same.Timeline = []verdict.Line{{At: 20 * time.Second, Who: "event", What: "DELETED pod a"}, {Who: "controller", What: "delete pod a"}, {Who: "controller", What: "delete pod a"}}
	require.NoError(t, e.CompareGolden(same), "numbers, repetitions and the order may differ")

	late := v
	late.Message = "The Pod was deleted after 59s."
	require.NoError(t, e.UpdateGolden(late))
	for _, duration := range []string{"1.5s", "1m23s", "1h0m1s"} {
		late.Message = "The Pod was deleted after " + duration + "."
		require.NoError(t, e.CompareGolden(late))
	}
	late.Message = "The Pod was deleted after 59 Nodes."
	require.Error(t, e.CompareGolden(late))
	require.NoError(t, e.UpdateGolden(v))

	other := v
	other.Message = "The Node was deleted 3 times."
	require.Error(t, e.CompareGolden(other))
	fewer := v
	fewer.Timeline = v.Timeline[:1]
	require.Error(t, e.CompareGolden(fewer))
	fewer.Timeline = append(v.Timeline[:2:2], verdict.Line{Who: "user", What: "delete pod b"})
	require.Error(t, e.CompareGolden(fewer))
	scene := v
	scene.Scene = "a Node"
	e.MayDiffer = []string{"delete pod b"}
	require.NoError(t, e.CompareGolden(fewer), "this line may differ")
	fewer.Timeline = append(fewer.Timeline, verdict.Line{Who: "user", What: "delete pod c"})
	require.Error(t, e.CompareGolden(fewer), "no other may")
	for _, about := range []exercise.About{{Cluster: true}, {TimelineVaries: true}} {
		e.About = about
		require.NoError(t, e.CompareGolden(fewer), "the timeline may differ")
		require.Error(t, e.CompareGolden(other))
		require.Error(t, e.CompareGolden(scene), "the scene may not")
	}
}

func TestText(t *testing.T) {
	v := exercise.Result{Exercise: "01-add", Verdict: exercise.Failed, Message: "A Pod is left.", Scene: "a Pod is deleted"}
	for second := range 9 {
		who := "controller"
		if second > 5 {
			who = "user"
		}
		v.Timeline = append(v.Timeline, verdict.Line{At: time.Duration(second) * time.Second, Who: who, What: "get pod a", Note: "404"})
	}
	v.Timeline = append(v.Timeline, verdict.Line{At: time.Minute, Who: "controller", What: "delete pod a-long-name-that-does-not-fit", Note: "500"})
	require.Equal(t, `01-add: failed

A Pod is left.

What happened (a Pod is deleted):

     0.0s  controller  get pod a: 404  (6 times, until 5.0s)
     6.0s  user        get pod a: 404  (3 times, until 8.0s)
    60.0s  controller  delete pod
                       a-long-name-that-does-not-fit: 500
`, v.Text(60, 0))
	require.Contains(t, v.Golden(), "delete pod a-long-name-that-does-not-fit: 500\n")
	v.Timeline[len(v.Timeline)-1].Note = strings.Repeat("long ", 100)
	require.Contains(t, v.Text(60, 0), "  60.0s  controller  delete pod\n"+
		"                       a-long-name-that-does-not-fit: long\n"+
		"                       long long long long long long long\n"+
		"                       long long long long long long long …\n")
	require.Contains(t, v.Golden(), "does-not-fit: long long long long long long long…\n", "one line, so that another number does not wrap it elsewhere")
	require.Contains(t, v.Text(30, 0), "60.0s  controller  delete…\n", "there is no room for more lines")
	require.Equal(t, "01-add: passed\n", exercise.Result{Exercise: "01-add", Verdict: exercise.Passed}.Text(60, 0))
}

func texts(rows []exercise.Row) []string {
	var texts []string
	for _, row := range rows {
		texts = append(texts, row.Text)
	}
	return texts
}

func TestShown(t *testing.T) {
	line := func(second int, what string) verdict.Line {
		return verdict.Line{At: time.Duration(second) * time.Second, Who: "log", What: what}
	}
	v := exercise.Result{Timeline: []verdict.Line{line(0, "start")}}
	for second := range 10 {
		v.Timeline = append(v.Timeline, line(second, "a"), line(second, "b"), line(second, "c"))
	}
	v.Timeline = append(v.Timeline, line(10, "a"), line(11, "end"), line(12, "end"))
	require.Equal(t, []string{
		"   0.0s  log         start",
		"   0.0s  log         a",
		"   0.0s  log         b",
		"   0.0s  log         c",
		"      …  these 3 lines 9 more times, until 9.0s",
		"  10.0s  log         a",
		"  11.0s  log         end  (2 times, until 12.0s)",
	}, texts(v.Shown(0)))

	v.Timeline = nil
	for number := range 40 {
		v.Timeline = append(v.Timeline, line(number, strings.Repeat("x", number)))
	}
	shown := v.Shown(10)
	require.Len(t, shown, 10)
	require.Equal(t, "      …  31 more lines", shown[3].Text)
	require.Len(t, v.Shown(0), 40)
}

// On a full disk, the progress of before stays in the file. A process that may not write to files stands in for one.
func TestProgressOnAFullDisk(t *testing.T) {
	const variable = "PROGRESS_TEST_FULL"
	if dir := os.Getenv(variable); dir != "" {
		p, err := (&exercise.Catalogue{Dir: dir}).ReadProgress()
		require.NoError(t, err)
		signal.Ignore(syscall.SIGXFSZ)
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}))
		require.ErrorContains(t, p.Update(func(p *exercise.Progress) { p.Hints["02-more"] = 1 }), "save your progress: write ")
		require.Equal(t, 1, p.Hints["02-more"])
		return
	}
	c := newCatalogue(t, "01-add", "02-more")
	p, err := c.ReadProgress()
	require.NoError(t, err)
	require.NoError(t, p.Update(func(p *exercise.Progress) { p.Pass(c.Exercises[0], time.Now()) }))
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"="+c.Dir)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	p, err = c.ReadProgress()
	require.NoError(t, err)
	require.Equal(t, 1, p.Count(c))
	require.Empty(t, p.Hints)
}

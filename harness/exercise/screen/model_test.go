package screen_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/exercise"
	"example.com/controllers/harness/exercise/screen"
	"example.com/controllers/harness/exercise/verdict"
)

const bug = "package small\n\n// Add adds.\nfunc Add(a, b int) int { return a - b }\n"

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

// room is a screen in front of which a test sits: it presses keys and reads what is shown. Its checks pass if the code of
// the exercise has a "+".
type room struct {
	*screen.Model
	t         *testing.T
	catalogue *exercise.Catalogue
	progress  *exercise.Progress
	pending   []tea.Cmd
	checks    []string // names of the exercises that were checked
	err       error    // of all checks
	timeline  []verdict.Line
	recorded  bool   // whether checks make requests
	url       string // of the drawing; "" if it cannot be served
	drawn     int    // how often the drawing was asked for
	quit      bool
}

func newRoom(t *testing.T, names ...string) *room {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		dir := filepath.Join(root, "exercises", name)
		write(t, filepath.Join(dir, "controller.go"), bug)
		write(t, filepath.Join(dir, ".solution", "controller.go"), strings.Replace(bug, "-", "+", 1))
		write(t, filepath.Join(dir, "README.md"), "# It subtracts\n\nSomebody wanted to add, and\nit [subtracted](https://example.com/1).\n\n> It was\n> 3:\n> ```\n> panic:  no\n> ```\n\n## Read\n\n- [A loop](../../01-naive-loop/README.md#x), and\n  [more][more]\n- the end\n\n```go\na\n\n\tb\n```\n\n[more]: https://example.com/2\n")
		write(t, filepath.Join(dir, "hints.md"), "## 1\n\nFirst hint.\n\n## 2\n\nSecond hint.\n\n## 3\n\nThird hint.\n")
		lesson := "1"
		if name == "12-most" {
			lesson = "2\ncluster: true\nwrite: true"
		}
		write(t, filepath.Join(dir, "exercise.yaml"), "title: It subtracts\nlesson: "+lesson+"\nfails: it subtracts\n")
		write(t, filepath.Join(dir, "why.md"), "A sum is no\n`difference`.\n")
		write(t, filepath.Join(dir, "failure.golden"), name+": failed\n\n1 and 2 made -1.\n\nWhat happened (it adds):\n\n     1.0s  controller  adds 1 and 2\n")
	}
	r := &room{t: t, recorded: true, url: drawingURL}
	var err error
	r.catalogue, err = exercise.Open(root)
	require.NoError(t, err)
	r.progress, err = r.catalogue.ReadProgress()
	require.NoError(t, err)
	r.open()
	return r
}

// drawingURL is as long as they are.
const drawingURL = "http://127.0.0.1:41234/44VIIVGEOTKKGPZVBF4ZAUTESJ/"

func (r *room) drawing() (string, error) {
	r.drawn++
	if r.url == "" {
		return "", errors.New("draw the last check: no space left")
	}
	return r.url, nil
}

// open starts the program, as "make exercise" does.
func (r *room) open() {
	r.t.Helper()
	var err error
	r.Model, err = screen.New(r.t.Context(), screen.Options{
		Catalogue: r.catalogue, Progress: r.progress, Check: r.check, Drawing: r.drawing,
		Path: func(path string) string { return strings.TrimPrefix(path, r.catalogue.Root+"/") },
	})
	require.NoError(r.t, err)
	r.pending = []tea.Cmd{r.Init()}
	r.send(tea.WindowSizeMsg{Width: 100, Height: 30})
}

func (r *room) check(_ context.Context, e exercise.Exercise) (exercise.Result, error) {
	r.checks = append(r.checks, e.Name)
	v := exercise.Result{Exercise: e.Name, Verdict: exercise.Passed, Seconds: 1.5, Recorded: r.recorded}
	v.Scene, v.Timeline = "it adds", []verdict.Line{{At: 2 * time.Second, Who: "controller", What: "adds them"}}
	code, err := os.ReadFile(filepath.Join(e.Mine, "controller.go"))
	if err == nil && !strings.Contains(string(code), "+") {
		v.Verdict, v.Message, v.Scene = exercise.Failed, "1 and 2 made -1.", "it adds"
		v.Timeline = append([]verdict.Line{{At: time.Second, Who: "controller", What: "adds 1 and 2"}}, r.timeline...)
	}
	return v, errors.Join(err, r.err)
}

func (r *room) send(msg tea.Msg) {
	if _, cmd := r.Update(msg); cmd != nil {
		r.pending = append(r.pending, cmd)
	}
}

// settle runs what the screen has started, such as checks.
func (r *room) settle() {
	for len(r.pending) > 0 {
		cmd := r.pending[0]
		r.pending = r.pending[1:]
		switch msg := cmd().(type) {
		case tea.QuitMsg:
			r.quit = true
		default:
			r.send(msg)
		}
	}
}

// press presses keys, and waits for what they cause.
func (r *room) press(keys ...string) {
	special := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "space": tea.KeySpace}
	for _, key := range keys {
		code, ok := special[key]
		if !ok {
			code = rune(key[0])
		}
		r.send(tea.KeyPressMsg{Code: code, Text: map[bool]string{false: key}[ok]})
		r.settle()
	}
}

func (r *room) save(text string) {
	r.t.Helper()
	write(r.t, filepath.Join(r.Current().Mine, "controller.go"), text)
	r.send(screen.SavedMsg{})
	r.settle()
}

func (r *room) shows(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		require.Contains(r.t, r.Text(), text)
	}
}

func TestSolveAnExercise(t *testing.T) {
	r := newRoom(t, "01-add", "02-more")
	r.shows("01-add", "0/2", "exercises/my/01-add", "… checking", "It subtracts", "Somebody wanted to add, and it subtracted <https://example.com/1>.", "\n\n> It was 3:\n>\n>     panic:  no\n\nRead\n\n- A loop (01-naive-loop/README.md), and more <https://example.com/2>\n- the end\n\n    a\n\n        b\n")
	r.settle()
	r.shows("✗ failed in 1.5s", "1 and 2 made -1.", "What happened (it adds):", "1.0s  controller  adds 1 and 2", "n next   h hint")

	r.save(bug)
	require.Len(t, r.checks, 1, "saved without a change")
	r.save(bug + "\n// still wrong\n")
	require.Len(t, r.checks, 2)
	require.Less(t, strings.Index(r.Text(), "1 and 2 made"), strings.Index(r.Text(), "Somebody"), "once something was changed, the verdict comes first")
	r.save(strings.Replace(bug, "-", "+", 1))
	r.shows("✓ passed in 1.5s", "1/2", "The controller passes. n opens the next exercise.\n\nA sum is no `difference`.\n\nWhat happened in the exercise as shipped (it adds):\n"+
		"   1.0s  controller  adds 1 and 2\n\nWhat happens now:\n   2.0s  controller  adds them\n\nThe solution in exercises/my/01-add/solution is the same as your code.")
	r.save(strings.Replace(bug, "a - b", "b + a", 1))
	r.shows("The solution is in exercises/my/01-add/solution. Compared with your code:\n--- yours/controller.go\n", "\n-func Add(a, b int) int { return b + a }\n+func Add(a, b int) int { return a + b }\n")
	require.FileExists(t, filepath.Join(r.Current().Mine, "solution", "controller.go"))
	require.False(t, r.progress.Passed["01-add"].IsZero())
	next, _ := r.progress.CurrentOf(r.catalogue)
	require.Equal(t, "02-more", next.Name, "a solved exercise that nobody has chosen is no longer the current one")

	r.press("n")
	require.Equal(t, "02-more", r.Current().Name)
	r.shows("✗ failed", "1/2")
	r.save(strings.Replace(bug, "-", "+", 1))
	r.shows("2/2", "you have solved all exercises")

	saved, err := r.catalogue.ReadProgress()
	require.NoError(t, err)
	require.Equal(t, 2, saved.Count(r.catalogue))
	require.Empty(t, saved.Current, "the choice ends when the exercise is solved")
	r.press("q")
	require.True(t, r.quit)
}

func TestHints(t *testing.T) {
	r := newRoom(t, "01-add")
	r.settle()
	require.NotContains(t, r.Text(), "First hint")
	r.press("h")
	r.shows("Hint 1 of 3\nFirst hint.")
	require.NotContains(t, r.Text(), "Second hint")
	r.press("h", "h", "h")
	r.shows("Hint 3 of 3\nThird hint.")

	progress, err := r.catalogue.ReadProgress()
	require.NoError(t, err)
	r.progress = progress
	r.open()
	r.settle()
	r.press("space")
	r.shows("Third hint")
}

func TestDrawing(t *testing.T) {
	const nothing = "This check made no request; the page shows the one before."
	r := newRoom(t, "01-add", "02-more")
	r.settle()
	require.NotContains(t, r.Text(), "drawn")
	r.url = ""
	r.press("v")
	r.shows("! draw the last check: no space left")
	r.url = drawingURL
	r.press("v")
	r.shows("exercises/my/01-add\n", "\nThe last check, drawn: "+drawingURL+"\n\nIt subtracts\n")
	r.press("G")
	require.NotContains(t, r.Text(), drawingURL)
	r.press("v")
	r.shows(drawingURL)
	require.Equal(t, 3, r.drawn)
	r.press("n")
	require.Equal(t, "02-more", r.Current().Name)
	r.shows(drawingURL)
	require.NotContains(t, r.Text(), nothing)

	r.recorded = false
	r.send(tea.KeyPressMsg{Code: 'r', Text: "r"})
	require.NotContains(t, r.Text(), nothing, "while it is checking")
	r.settle()
	r.shows(drawingURL + "\n" + nothing + "\n\n")
	r.send(tea.WindowSizeMsg{Width: 60, Height: 20})
	r.shows("The last check, drawn:\n" + drawingURL + "\n" + nothing + "\n\n")
	r.send(tea.WindowSizeMsg{Width: 40, Height: 20})
	require.Contains(t, strings.ReplaceAll(r.Text(), "\n", ""), drawingURL)
	r.press("l", "v")
	r.shows("enter open")
}

func TestList(t *testing.T) {
	r := newRoom(t, "01-add", "02-more", "12-most")
	r.settle()
	require.NoError(t, r.progress.Update(func(p *exercise.Progress) { p.Pass(r.catalogue.Exercises[0], time.Now()) }))
	r.press("l")
	r.shows("Lesson 1\n> ✓  1  It subtracts\n     2  It subtracts\nLesson 2\n    12  It subtracts  write, needs the control plane\n", "1/3", "enter open")
	require.NotContains(t, r.Text(), "01-add", "the name of a directory says what is wrong")
	r.press("1")
	r.shows("> ✓  1")
	r.press("2")
	r.shows(">   12")
	r.press("2")
	r.shows(">    2")
	r.press("9")
	r.shows(">    2")
	r.press("0", "1")
	r.shows("> ✓  1")
	r.press("down", "down", "down", "up", "down", "enter")
	require.Equal(t, "12-most", r.Current().Name)
	require.Equal(t, "12-most", r.checks[len(r.checks)-1])
	r.press("l", "up", "esc")
	require.Equal(t, "12-most", r.Current().Name)
	r.press("n")
	require.Equal(t, "02-more", r.Current().Name, "the first that is not solved, from the beginning")

	progress, err := r.catalogue.ReadProgress()
	require.NoError(t, err)
	r.progress = progress
	r.open()
	require.Equal(t, "02-more", r.Current().Name, "the choice outlives the program")
}

func TestReset(t *testing.T) {
	r := newRoom(t, "01-add")
	r.settle()
	r.save(strings.Replace(bug, "-", "+", 1))
	r.press("x")
	r.shows("Reset 01-add? Your changes will be lost.")
	r.press("n")
	r.shows("✓ passed")
	r.press("x", "y")
	r.shows("✗ failed", "1/1")
	require.False(t, r.Current().IsChanged())
	require.NoDirExists(t, filepath.Join(r.Current().Mine, "solution"))
}

// On a narrow terminal, nothing is cut off that a participant needs.
func TestNarrow(t *testing.T) {
	r := newRoom(t, "01-add")
	r.timeline = []verdict.Line{{At: time.Second, Who: "log", What: "Reconcile failed error=update node node-1: the server could not find it"}}
	r.send(tea.WindowSizeMsg{Width: 60, Height: 20})
	r.settle()
	r.press("G")
	r.shows("lines above: b, ↑", "   1.0s  log         Reconcile failed error=update node\n                     node-1: the server could not find it\n")
	r.press("g")
	r.shows("more lines: space, ↓")
	r.press("x")
	r.shows("Reset 01-add? Your changes will be lost.   y yes\nany other key: no")
	r.send(tea.WindowSizeMsg{Width: 25, Height: 60})
	require.Contains(t, strings.ReplaceAll(r.Text(), "\n", ""), "<https://example.com/1>", "a word that is too long is broken")
}

func TestRunAgain(t *testing.T) {
	r := newRoom(t, "01-add")
	r.settle()
	r.press("r")
	require.Len(t, r.checks, 2)
	// A save while a check is running replaces it: its verdict does not count.
	r.send(tea.KeyPressMsg{Code: 'r', Text: "r"})
	write(t, filepath.Join(r.Current().Mine, "controller.go"), strings.Replace(bug, "-", "+", 1))
	r.send(screen.SavedMsg{})
	require.Len(t, r.pending, 2)
	r.pending[0], r.pending[1] = r.pending[1], func() tea.Msg { return nil }
	r.settle()
	r.shows("✓ passed")
}

func TestProblems(t *testing.T) {
	r := newRoom(t, "01-add")
	r.err = errors.New("start a control plane: no space left\nsecond line")
	r.settle()
	r.shows("! start a control plane: no space left")
	require.NotContains(t, r.Text(), "second line")
	r.err = nil
	require.NoError(t, os.RemoveAll(r.Current().Mine))
	checks := len(r.checks)
	r.send(screen.SavedMsg{})
	r.settle()
	require.Len(t, r.checks, checks, "an editor may be about to put the directory back")
}

func TestStatus(t *testing.T) {
	r := newRoom(t, "01-add")
	r.send(screen.StatusMsg("building controlplane: 7 of 2000 packages, 3s"))
	r.shows("… building controlplane: 7 of 2000 packages, 3s")
	r.settle()
	require.NotContains(t, r.Text(), "building")
}

// Whatever the size of the terminal, no line is too long, and the screen has no more lines than it.
func TestSizes(t *testing.T) {
	for _, size := range []tea.WindowSizeMsg{{Width: 100, Height: 40}, {Width: 60, Height: 20}, {Width: 30, Height: 10}, {Width: 10, Height: 3}, {Width: 300, Height: 100}} {
		r := newRoom(t, "01-add", "02-more")
		r.send(size)
		r.settle()
		for _, keys := range [][]string{{}, {"h", "h", "h"}, {"space"}, {"G"}, {"g"}, {"v"}, {"x"}, {"z", "l"}, {"down"}} {
			r.press(keys...)
			lines := strings.Split(r.Text(), "\n")
			if size.Height >= 10 {
				require.LessOrEqual(t, len(lines), size.Height, "%+v %v\n%s", size, keys, r.Text())
			}
			for _, line := range lines {
				require.LessOrEqual(t, ansi.StringWidth(line), size.Width, "%+v %v\n%s", size, keys, line)
			}
			require.NotContains(t, r.Text(), "\x1b", "without color, there are no escape sequences")
		}
	}
}

// An editor may write to a file, replace it, or replace its directory.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "01-add", "controller.go")
	write(t, file, "a")
	changed := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go screen.Watch(ctx, dir, func() { changed <- struct{}{} })
	<-changed // it is watching
	for name, save := range map[string]func(){
		"write": func() { write(t, file, "b") },
		"rename": func() {
			write(t, file+".tmp", "c")
			require.NoError(t, os.Rename(file+".tmp", file))
		},
		"a new directory": func() {
			require.NoError(t, os.RemoveAll(filepath.Dir(file)))
			write(t, file, "d")
		},
	} {
		save()
		<-changed
		require.FileExists(t, file, name)
	}
}

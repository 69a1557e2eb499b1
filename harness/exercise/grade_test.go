package exercise_test

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/exercise"
	"example.com/controllers/harness/exercise/check"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/page"
)

// checker is the first argument that makes the test binary check the first exercise of a repository, as the tool does.
const checker = "check"

func TestMain(m *testing.M) {
	guard.Main()
	if len(os.Args) == 3 && os.Args[1] == checker {
		c, err := exercise.Open(os.Args[2])
		if err == nil {
			_, err = (&exercise.Grader{Catalogue: c, Limit: time.Hour}).Check(context.Background(), c.Exercises[0])
		}
		panic(err) // it should have been killed
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each guard takes a second to end
	os.Exit(m.Run())
}

// grader is a check that needs only the standard library, so that it compiles quickly. It writes what package verdict
// writes.
const grader = `//go:build exercise

package small

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

func TestExercise(t *testing.T) {
	file, err := os.OpenFile(os.Getenv("WORKSHOP_VERDICT"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(file, ` + "`" + `{"scene":"it adds"}` + "`" + `)
	fmt.Fprintln(file, ` + "`" + `{"line":{"at":1000000000,"who":"controller","what":"adds"}}` + "`" + `)
	got := Add(1, 2)
	switch got {
	case 99:
		t.Fatal("the check cannot go on")
	case 98:
		panic("no such object")
	case 97:
		var never sync.WaitGroup
		never.Add(1)
		never.Wait()
	}
	if got != 3 {
		fmt.Fprintf(file, "{\"failure\":\"1 and 2 made %d.\"}\n", got)
		t.FailNow()
	}
	fmt.Fprintln(file, ` + "`" + `{"passed":true}` + "`" + `)
}
`

const (
	shipped = "package small\n\n// Add adds.\nfunc Add(a, b int) int { return a - b }\n"
	solved  = "package small\n\n// Add adds.\nfunc Add(a, b int) int { return a + b }\n"
)

// newCatalogue returns a catalogue with small exercises in a module without dependencies.
func newCatalogue(t *testing.T, names ...string) *exercise.Catalogue {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "exercises", "go.mod"), "module example.com/small\n\ngo 1.26.0\n\nignore ./my\n")
	for _, name := range names {
		dir := filepath.Join(root, "exercises", name)
		write(t, filepath.Join(dir, "controller.go"), shipped)
		write(t, filepath.Join(dir, "check_test.go"), grader)
		write(t, filepath.Join(dir, ".solution", "controller.go"), solved)
		write(t, filepath.Join(dir, "README.md"), "# It subtracts\n\nSee [the lesson](../../01-naive-loop/README.md).\n")
		write(t, filepath.Join(dir, "hints.md"), "## 1\n\nLook.\n\n## 2\n\nLook there.\n\n## 3\n\nAnother operator.\n")
		write(t, filepath.Join(dir, "why.md"), "A sum is no difference.\n")
		write(t, filepath.Join(dir, "failure.golden"), "")
		write(t, filepath.Join(dir, "exercise.yaml"), "title: It subtracts\nlesson: 1\nfails: it subtracts\n")
	}
	c, err := exercise.Open(root)
	require.NoError(t, err)
	return c
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

// Whatever the participant's code does, the check ends with a verdict, and nothing is left behind.
func TestCheck(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files   map[string]string // in the participant's copy; "" deletes one
		outcome exercise.Verdict
		message string        // part of the message
		output  string        // part of the output
		limit   time.Duration // must be enough for the guard to start the program on a busy machine; 0 for a check that ends by itself
	}{
		"as shipped":           {nil, exercise.Failed, "1 and 2 made -1.", "", 0},
		"solved":               {map[string]string{"controller.go": solved}, exercise.Passed, "", "", 0},
		"does not compile":     {map[string]string{"controller.go": "package small\n\nfunc Add(a, b int) int { return a +* b }\n"}, exercise.DoesNotCompile, "does not compile", "controller.go:3:", 0},
		"has another package":  {map[string]string{"more.go": "package large\n"}, exercise.DoesNotCompile, "does not compile", "more.go", 0},
		"the code is gone":     {map[string]string{"controller.go": ""}, exercise.DoesNotCompile, "does not compile", "", 0},
		"panics":               {add(`panic("no")`), exercise.Panicked, "The controller panicked: no.", "controller.go:4  Add", 0},
		"panics elsewhere":     {add(`go panic("no"); select {}`), exercise.Panicked, "panicked: no.", "", 0},
		"exits with success":   {addWith("os", `os.Exit(0)`), exercise.Exited, "exited with status 0 before the check was over", "", 0},
		"exits":                {addWith("os", `os.Exit(7)`), exercise.Exited, "exited with status 7", "", 0},
		"stops its goroutine":  {addWith("runtime", `runtime.Goexit()`), exercise.Panicked, "runtime.Goexit", "", 0},
		"breaks the check":     {add(`return 99`), exercise.Broken, "The check could not go on", "the check cannot go on", 0},
		"the check panics":     {add(`return 98`), exercise.Broken, "The check panicked: no such object. This is a mistake in the exercise, and says nothing about your code.", "", 0},
		"the check hangs":      {add(`return 97`), exercise.Broken, "The Go runtime stopped the check: all goroutines are asleep - deadlock!. This is", "", 0},
		"waits for a mutex":    {addWith("sync", `var mu sync.Mutex; mu.Lock(); mu.Lock()`), exercise.Hung, "A goroutine waits for a mutex", "controller.go:6", 0},
		"hangs":                {add(`select {}`), exercise.Panicked, "all goroutines are asleep", "", 0},
		"never waits":          {add(`for { }`), exercise.Hung, "did not end within ", "", 10 * time.Second},
		"waits forever":        {addWith("time", `time.Sleep(time.Hour)`), exercise.Hung, "did not end within ", "", 10 * time.Second},
		"waits for input":      {addWith("os", `r, _, _ := os.Pipe(); r.Read(make([]byte, 1))`), exercise.Hung, "did not end within ", "controller.go:6 ", 10 * time.Second},
		"kills itself":         {addWith("syscall", `_ = syscall.Kill(0, syscall.SIGKILL)`), exercise.Exited, "before the check was over", "", 0},
		"fills the log":        {addWith("fmt", `for range 2_000_000 { fmt.Println("more and more and more and more") }`), exercise.Passed, "", "", 0},
		"prints a panic":       {addWith("fmt", `fmt.Println("panic: caught"); fmt.Println("fatal error: none")`), exercise.Passed, "", "", 0},
		"edits the grader":     {map[string]string{"check_test.go": "package small\n\nimport \"testing\"\n\nfunc TestExercise(*testing.T) {}\n"}, exercise.Failed, "1 and 2 made -1.", "", 0},
		"brings its own tests": {map[string]string{"main_test.go": "package small\n\nimport \"testing\"\n\nfunc TestMain(*testing.M) {}\n"}, exercise.Failed, "1 and 2 made -1.", "", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCatalogue(t, "01-add")
			e := c.Exercises[0]
			_, err := e.Copy()
			require.NoError(t, err)
			for file, text := range test.files {
				if text == "" {
					require.NoError(t, os.Remove(filepath.Join(e.Mine, file)))
					continue
				}
				write(t, filepath.Join(e.Mine, file), text)
			}
			g := &exercise.Grader{Catalogue: c, Limit: cmp.Or(test.limit, time.Hour)}
			v, err := g.Check(t.Context(), e)
			require.NoError(t, err)
			require.Equal(t, test.outcome, v.Verdict, "%s\n%.1000s", v.Message, v.Output)
			require.Contains(t, v.Message, test.message)
			require.Contains(t, v.Output, test.output)
			require.NotContains(t, v.Output, "goroutine ")
			if v.Verdict != exercise.DoesNotCompile {
				require.Equal(t, "it adds", v.Scene)
				require.Len(t, v.Timeline, 1)
			}
		})
	}
}

// An exercise may ask for an analyzer of go vet. Code that does not compile is none of its business.
func TestCheckVets(t *testing.T) {
	suite.Long(t, "it runs vet")
	t.Parallel()
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	e.Vet = "waitgroup"
	late := addWith("sync", "var adding sync.WaitGroup; go func() { adding.Add(1); adding.Done() }(); adding.Wait()")["controller.go"]
	check := func(code string) exercise.Result {
		write(t, filepath.Join(e.Mine, "controller.go"), code)
		v, err := (&exercise.Grader{Catalogue: c}).Check(t.Context(), e)
		require.NoError(t, err)
		return v
	}
	v := check(late)
	require.Equal(t, exercise.Failed, v.Verdict)
	require.Equal(t, "go vet finds a mistake in the code: controller.go:6:51: WaitGroup.Add called from inside new goroutine", v.Message)
	require.True(t, check(solved).Passed())
	require.Equal(t, exercise.DoesNotCompile, check(strings.Replace(late, "a + b", "a +* b", 1)).Verdict)
	require.Equal(t, exercise.DoesNotCompile, check(strings.Replace(late, "a + b", "a + c", 1)).Verdict)
	e.Vet = ""
	require.True(t, check(late).Passed())
}

// add returns a controller.go whose Add does something before it adds correctly.
func add(statement string) map[string]string {
	return map[string]string{"controller.go": "package small\n\nfunc Add(a, b int) int {\n\t" + statement + "\n\treturn a + b\n}\n"}
}

func addWith(imported, statement string) map[string]string {
	files := add(statement)
	files["controller.go"] = strings.Replace(files["controller.go"], "\n\n", "\n\nimport \""+imported+"\"\n\n", 1)
	return files
}

// The compiled packages of a bundle are found with -trimpath only. Other flags of the participant's could break the build.
func TestCheckKeepsTrimpath(t *testing.T) {
	suite.Long(t, "it compiles the standard library again")
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	write(t, filepath.Join(e.Mine, "controller.go"), addWith("runtime", "_, file, _, _ := runtime.Caller(0); panic(file)")["controller.go"])
	t.Setenv("GOFLAGS", "-race -trimpath -modcacherw -mod=vendor")
	v, err := (&exercise.Grader{Catalogue: c}).Check(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, exercise.Panicked, v.Verdict, "%s\n%s", v.Message, v.Output)
	require.Contains(t, v.Message, "The controller panicked: example.com/small/my/01-add/controller.go.")
	require.Equal(t, "controller.go:6  Add", v.Output)
}

// A grader keeps the recording of the scene in its verdict, and that of the check before if there is none.
func TestCheckKeepsTheRecording(t *testing.T) {
	t.Parallel()
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	dir := t.TempDir()
	g := &exercise.Grader{Catalogue: c, Recording: filepath.Join(dir, "recording")}
	// run checks code that writes what a check writes when it has got this far; it may be killed while it writes.
	run := func(records string) (exercise.Result, error) {
		write(t, filepath.Join(e.Mine, "controller.go"), addWith("os", `os.WriteFile(os.Getenv("WORKSHOP_CHECK_RECORDINGS") + "/it%20adds.jsonl", []byte(`+strconv.Quote(records)+`), 0o600)`)["controller.go"])
		return g.Check(t.Context(), e)
	}
	check := func(records string) exercise.Result {
		v, err := run(records)
		require.NoError(t, err)
		require.True(t, v.Passed(), "%s\n%s", v.Message, v.Output)
		return v
	}
	request := func(name string) string {
		return `{"request":{"id":1,"start":"2000-01-01T00:00:01Z","verb":"get","resource":"pods","name":"` + name + `","uri":"/"}}` + "\n"
	}
	require.False(t, check("").Recorded)
	require.NoFileExists(t, g.Recording)
	const step = `{"step":{"time":"2000-01-01T00:00:00Z","name":"it adds"}}` + "\n"
	for _, name := range []string{"web-0", "web-1"} {
		v := check(request(name) + step + `{"requ`)
		require.True(t, v.Recorded)
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.NotContains(t, string(text), "ecorded")
		recorded, err := history.ReadFile(g.Recording)
		require.NoError(t, err)
		require.Equal(t, "it adds", recorded.Steps[0].Name)
		require.Equal(t, name, recorded.Requests[0].Name)
	}
	require.False(t, check(step).Recorded)
	write(t, filepath.Join(e.Mine, "controller.go"), "package large")
	v, err := g.Check(t.Context(), e)
	require.NoError(t, err)
	require.False(t, v.Recorded)
	require.Equal(t, []string{"recording"}, names(t, dir))
	recorded, err := history.ReadFile(g.Recording)
	require.NoError(t, err)
	require.Equal(t, "web-1", recorded.Requests[0].Name)

	g.Recording = filepath.Join(dir, "gone", "recording")
	_, err = run(request("web-2"))
	require.ErrorContains(t, err, "keep the recording of the check: open "+filepath.Join(dir, "gone"))
}

// The check of a real exercise can be drawn. It is in virtual time.
func TestDrawARealCheck(t *testing.T) {
	suite.Long(t, "it compiles an exercise")
	t.Parallel()
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	testinput.Declare(filepath.Join(root, "exercises", "29-status-loop"), filepath.Join(root, "exercises", "go.mod"))
	c, err := exercise.Open(root)
	require.NoError(t, err)
	e, err := c.Find("29")
	require.NoError(t, err)
	g := &exercise.Grader{Catalogue: c, Recording: filepath.Join(t.TempDir(), "the last check")}
	v, err := g.CheckShipped(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, exercise.Failed, v.Verdict, v.Message)
	require.True(t, v.Recorded)
	text, err := os.ReadFile(g.Recording)
	require.NoError(t, err)
	require.NotContains(t, string(text), "10.0.0.1", "a recording has no content")
	recorded, err := history.ReadFile(g.Recording)
	require.NoError(t, err)
	require.Equal(t, v.Scene, recorded.Steps[0].Name)

	recording, err := page.Open(g.Recording)
	require.NoError(t, err)
	defer recording.Close()
	m := recording.Model()
	require.Equal(t, "the last check", m.Title)
	require.Equal(t, []string{check.ControllerName}, m.Programs)
	require.Greater(t, m.End, float64(10*time.Minute/time.Millisecond))
	lane := slices.IndexFunc(m.Lanes, func(l view.Lane) bool { return l.Resource == "services" && l.Name == "shop/web" })
	require.GreaterOrEqual(t, lane, 0)
	writes := 0
	for _, mark := range m.Marks {
		if mark.Lane == lane && mark.Verb == "update" && mark.What == "services/status" {
			writes++
		}
	}
	require.Greater(t, writes, 40, v.Message)
}

func TestCheckThroughASymbolicLink(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(newCatalogue(t, "01-add").Root, link))
	c, err := exercise.Open(link)
	require.NoError(t, err)
	write(t, filepath.Join(c.Exercises[0].Mine, "controller.go"), solved)
	v, err := (&exercise.Grader{Catalogue: c}).Check(t.Context(), c.Exercises[0])
	require.NoError(t, err)
	require.Equal(t, exercise.Passed, v.Verdict, "%s\n%s", v.Message, v.Output)
}

// A process that the participant's code starts in the background does not outlive the check, nor does the check wait for it.
func TestCheckEndsBackgroundProcesses(t *testing.T) {
	t.Parallel()
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	pids := filepath.Join(t.TempDir(), "pids")
	write(t, filepath.Join(e.Mine, "controller.go"), `package small

import "os/exec"

func Add(a, b int) int {
	_ = exec.Command("sh", "-c", "sleep 1000 & echo $! >`+pids+`; sleep 1000").Start()
	_ = exec.Command("sh", "-c", "until [ -s `+pids+` ]; do sleep 0.1; done").Run()
	return a + b
}
`)
	v, err := (&exercise.Grader{Catalogue: c}).Check(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, exercise.Passed, v.Verdict, "%s\n%s", v.Message, v.Output)
	text, err := os.ReadFile(pids)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	// It has been sent SIGKILL, but may not have been scheduled since.
	require.Eventually(t, func() bool { return hasEnded(pid) }, time.Minute, 10*time.Millisecond, "process %d is still running", pid)
}

// What is deleted from the participant's copy while the check runs comes back. A file that is renamed does not.
func TestCheckRestoresWhatIsDeleted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		statement string // of Add, which then adds correctly; MINE is the path of the copy
		message   string // "" if the check passes
		left      []string
	}{
		"the directory": {`os.RemoveAll("MINE")`, "While the check ran, the directory was deleted from your copy, perhaps by your code. It has been restored.", []string{"README.md", "controller.go", "more.go"}},
		"a file":        {`os.Remove("MINE/more.go")`, "While the check ran, more.go was deleted from your copy, perhaps by your code. It has been restored.", []string{"README.md", "controller.go", "more.go"}},
		"two files":     {`errors.Join(os.Remove("MINE/README.md"), os.Remove("MINE/controller.go"))`, "README.md and controller.go were deleted", []string{"README.md", "controller.go", "more.go"}},
		// An editor's, which the participant has closed.
		"a swap file":    {`os.Remove("MINE/.controller.go.swp")`, "", []string{".#controller.go", "README.md", "controller.go", "more.go"}},
		"a renamed file": {`os.Rename("MINE/more.go", "MINE/renamed.go")`, "", []string{"README.md", "controller.go", "renamed.go"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCatalogue(t, "01-add")
			e := c.Exercises[0]
			_, err := e.Copy()
			require.NoError(t, err)
			code := "package small\n\nimport (\n\t\"errors\"\n\t\"os\"\n)\n\nfunc Add(a, b int) int {\n\tif err := errors.Join(" + strings.ReplaceAll(test.statement, "MINE", e.Mine) + "); err != nil {\n\t\tpanic(err)\n\t}\n\treturn a + b\n}\n"
			write(t, filepath.Join(e.Mine, "controller.go"), code)
			write(t, filepath.Join(e.Mine, "more.go"), "package small\n")
			if name == "a swap file" {
				write(t, filepath.Join(e.Mine, ".controller.go.swp"), "vim's")
				require.NoError(t, os.Symlink("me@here.1", filepath.Join(e.Mine, ".#controller.go")), "Emacs's, which leads nowhere")
			}
			v, err := (&exercise.Grader{Catalogue: c}).Check(t.Context(), e)
			require.NoError(t, err)
			if test.message == "" {
				require.True(t, v.Passed(), v.Message)
			} else {
				require.Equal(t, exercise.Failed, v.Verdict)
				require.Contains(t, v.Message, test.message)
			}
			require.Equal(t, test.left, names(t, e.Mine))
			restored, err := os.ReadFile(filepath.Join(e.Mine, "controller.go"))
			require.NoError(t, err)
			require.Equal(t, code, string(restored))
		})
	}
}

// A file of the exercise that the participant has deleted is named.
func TestCheckNamesMissingFiles(t *testing.T) {
	t.Parallel()
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	write(t, filepath.Join(e.Dir, "numbers.go"), "package small\n\ntype number = int\n")
	write(t, filepath.Join(e.Dir, "controller.go"), strings.ReplaceAll(shipped, " int", " number"))
	g := &exercise.Grader{Catalogue: c}
	check := func(missing ...string) exercise.Result {
		require.NoError(t, e.Reset())
		for _, name := range missing {
			require.NoError(t, os.Remove(filepath.Join(e.Mine, name)))
		}
		v, err := g.Check(t.Context(), e)
		require.NoError(t, err)
		return v
	}
	require.Equal(t, exercise.Failed, check("README.md").Verdict)

	v := check("numbers.go")
	require.Equal(t, exercise.DoesNotCompile, v.Verdict)
	require.Equal(t, "The code does not compile, and numbers.go is missing from your copy. Restore it in your editor, copy it from exercises/01-add, or reset the exercise, which gives you a new copy.", v.Message)
	require.Contains(t, v.Output, "undefined: number")
	require.Contains(t, check("numbers.go", "controller.go").Message, "controller.go and numbers.go are missing from your copy. Restore them")

	check("numbers.go")
	write(t, filepath.Join(e.Mine, "controller.go"), solved)
	v, err := g.Check(t.Context(), e)
	require.NoError(t, err)
	require.True(t, v.Passed(), "a solution may do without a file: %s", v.Message)
}

// A check that is interrupted ends at once.
func TestCheckCanBeInterrupted(t *testing.T) {
	t.Parallel()
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	started := filepath.Join(t.TempDir(), "started")
	write(t, filepath.Join(e.Mine, "controller.go"), addWith("os", `_ = os.WriteFile(`+strconv.Quote(started)+`, nil, 0o600); for { }`)["controller.go"])
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(started); err == nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	_, err := (&exercise.Grader{Catalogue: c, Limit: time.Hour}).Check(ctx, e)
	require.ErrorIs(t, err, context.Canceled)
}

// Without space on the disk, nothing is said of the participant's code.
func TestCheckOnAFullDisk(t *testing.T) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\necho 'link: mapping output file failed: no space left on device' >&2; exit 1\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	c := newCatalogue(t, "01-add")
	_, err := (&exercise.Grader{Catalogue: c}).Check(t.Context(), c.Exercises[0])
	require.EqualError(t, err, "compile 01-add: no space left on device; free some, and check again")
}

func TestWrapKeepsNamesWhole(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Node\nnode-1 was\nadmitted.", exercise.Wrap("Node node-1 was admitted.", 10))
	require.Equal(t, "a-word-tha\nt-is-long", exercise.Wrap("a-word-that-is-long", 10))
}

// A check may be interrupted, or the tool killed, while the code compiles or while it runs. Either way, no process and no
// temporary file is left.
func TestInterruptedCheckLeavesNothing(t *testing.T) {
	hangs := func(pids string) string {
		return "sleep 1000 & echo $$ $! > " + pids + "; wait"
	}
	for name, prepare := range map[string]func(t *testing.T, e exercise.Exercise, pids string){
		"while it compiles": func(t *testing.T, e exercise.Exercise, pids string) {
			bin := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\necho temporary > $GOTMPDIR/go-build\n"+hangs(pids)+"\n"), 0o755))
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		},
		"while it runs": func(t *testing.T, e exercise.Exercise, pids string) {
			write(t, filepath.Join(e.Mine, "controller.go"), addWith("os/exec", `_ = exec.Command("sh", "-c", `+strconv.Quote(hangs(pids))+`).Run()`)["controller.go"])
		},
	} {
		t.Run(name, func(t *testing.T) {
			for how, interrupt := range map[string]func(t *testing.T, e exercise.Exercise, root, pids string){
				"by cancelling it": func(t *testing.T, e exercise.Exercise, root, pids string) {
					c, err := exercise.Open(root)
					require.NoError(t, err)
					ctx, cancel := context.WithCancel(t.Context())
					go func() {
						awaitFile(ctx, pids)
						cancel()
					}()
					_, err = (&exercise.Grader{Catalogue: c, Limit: time.Hour}).Check(ctx, e)
					require.ErrorIs(t, err, context.Canceled)
				},
				"by killing the tool": func(t *testing.T, _ exercise.Exercise, root, pids string) {
					tool := exec.Command(os.Args[0], checker, root)
					require.NoError(t, tool.Start())
					awaitFile(t.Context(), pids)
					require.NoError(t, tool.Process.Kill())
					require.ErrorContains(t, tool.Wait(), "killed")
				},
			} {
				t.Run(how, func(t *testing.T) {
					c := newCatalogue(t, "01-add")
					e := c.Exercises[0]
					_, err := e.Copy()
					require.NoError(t, err)
					pids := filepath.Join(t.TempDir(), "pids")
					prepare(t, e, pids)
					t.Setenv("TMPDIR", t.TempDir())
					interrupt(t, e, c.Root, pids)
					text, err := os.ReadFile(pids)
					require.NoError(t, err)
					for _, pid := range strings.Fields(string(text)) {
						id, err := strconv.Atoi(pid)
						require.NoError(t, err)
						require.Eventually(t, func() bool { return hasEnded(id) }, time.Minute, 10*time.Millisecond, "process %d is still running", id)
					}
					require.Eventually(t, func() bool { return len(names(t, os.Getenv("TMPDIR"))) == 0 }, time.Minute, 10*time.Millisecond)
				})
			}
		})
	}
}

// awaitFile waits until a file has a line, or ctx is cancelled.
func awaitFile(ctx context.Context, path string) {
	for ctx.Err() == nil {
		if text, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(text), "\n") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// hasEnded says whether a process has ended. It may not have been waited for.
func hasEnded(pid int) bool {
	status, err := (&process.Process{Pid: int32(pid)}).Status()
	return err != nil || slices.Contains(status, process.Zombie)
}

func TestCheckSolutionAndShipped(t *testing.T) {
	t.Parallel()
	c := newCatalogue(t, "01-add")
	e := c.Exercises[0]
	g := &exercise.Grader{Catalogue: c}
	v, err := g.CheckSolution(t.Context(), e)
	require.NoError(t, err)
	require.True(t, v.Passed(), v.Message)
	v, err = g.CheckShipped(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, exercise.Failed, v.Verdict)
	require.False(t, e.HasCopy(), "neither is the participant's copy")
	entries, err := os.ReadDir(filepath.Join(c.Dir, "my"))
	require.NoError(t, err)
	require.Empty(t, entries, "left behind")
}

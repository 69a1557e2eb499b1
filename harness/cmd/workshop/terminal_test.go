package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/term"
)

// terminal is a terminal in which a command runs: a test types keys and watches the screen.
type terminal struct {
	*emulator
	t       *testing.T
	cmd     *exec.Cmd
	ours    *os.File // the end of the pseudo-terminal that a terminal emulator holds
	its     *os.File // the command's end
	before  *term.State
	exited  chan struct{}
	drained chan struct{}
}

// openTerminal runs a command of the workshop in a new terminal.
func (r *repository) openTerminal(columns, rows int, args ...string) *terminal {
	r.t.Helper()
	ours, its, err := pty.Open()
	require.NoError(r.t, err)
	tt := &terminal{emulator: newEmulator(columns, rows), t: r.t, ours: ours, its: its, exited: make(chan struct{}), drained: make(chan struct{})}
	tt.setSize(columns, rows)
	tt.before, err = term.GetState(int(its.Fd()))
	require.NoError(r.t, err)
	tt.cmd = r.command(args...)
	tt.cmd.Env = append(tt.cmd.Env, "TERM=xterm-256color", "COLORTERM=", "NO_COLOR=")
	tt.cmd.Stdin, tt.cmd.Stdout, tt.cmd.Stderr = its, its, its
	tt.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(r.t, tt.cmd.Start())
	go func() {
		defer close(tt.drained)
		_, _ = io.Copy(tt, ours)
	}()
	go func() {
		_ = tt.cmd.Wait()
		close(tt.exited)
	}()
	r.t.Cleanup(func() {
		_ = tt.cmd.Process.Kill() // it should have exited
		<-tt.exited
		its.Close()
		ours.Close()
		<-tt.drained
	})
	return tt
}

// setSize changes the size of the terminal, as a person does with the mouse.
func (tt *terminal) setSize(columns, rows int) {
	tt.t.Helper()
	tt.resize(columns, rows)
	require.NoError(tt.t, pty.Setsize(tt.ours, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}))
}

const ctrlC = "\x03"

// press types keys.
func (tt *terminal) press(keys string) {
	tt.t.Helper()
	_, err := tt.ours.WriteString(keys)
	require.NoError(tt.t, err)
}

// sees waits until all texts are on the screen.
func (tt *terminal) sees(texts ...string) {
	tt.t.Helper()
	var missing string
	tt.await(func() bool {
		screen := tt.text()
		at := slices.IndexFunc(texts, func(text string) bool { return !strings.Contains(screen, text) })
		if at >= 0 {
			missing = texts[at]
		}
		return at < 0
	}, func() string { return "there is no " + strconv.Quote(missing) + " on the screen" })
}

// await waits until holds returns true.
func (tt *terminal) await(holds func() bool, problem func() string) {
	tt.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tt.t.Fatalf("%s:\n%s", problem(), tt.text())
		}
	}
}

// requireRestored waits until the command has exited, and requires that it leaves the terminal as it was. It returns the exit
// status.
func (tt *terminal) requireRestored() int {
	tt.t.Helper()
	tt.await(func() bool {
		select {
		case <-tt.exited:
			return true
		default:
			return false
		}
	}, func() string { return "the command has not exited" })
	tt.await(func() bool {
		tt.mu.Lock()
		defer tt.mu.Unlock()
		return !tt.alternate && !tt.cursorHidden
	}, func() string { return "the terminal shows the program's screen, or no cursor" })
	after, err := term.GetState(int(tt.its.Fd()))
	require.NoError(tt.t, err)
	require.Equal(tt.t, tt.before, after, "the terminal's mode")
	require.Empty(tt.t, tt.unknown, "escape sequences that the test does not know")
	return tt.cmd.ProcessState.ExitCode()
}

func TestExercisesInATerminal(t *testing.T) {
	r := newExercises(t)
	tt := r.openTerminal(100, 30, "exercises")
	tt.sees("01-add  ░░░", " 0/2\nexercises/my/01-add\n✗ failed in ", "\n\nIt subtracts\n", "1 and 2 made something else.\n",
		"What happened (it adds):\n   0.0s  controller  adds\n", "n next   h hint   v view   l list   r run   x reset   q quit")
	require.Equal(t, 29, strings.Count(strings.TrimRight(tt.text(), "\n"), "\n"), "the keys are in the last line")

	tt.press("h")
	tt.sees("Hint 1 of 3\nFirst.\n")
	tt.press("hh")
	tt.sees("Hint 3 of 3\nThird.\n")
	tt.press("l")
	tt.sees("Exercises  ░░░", "Lesson 1\n>    1  It subtracts\n     2  It subtracts\n", "enter open   l back")
	tt.press("jk\x1b[B") // ↓
	tt.sees("\n>    2  It")
	tt.press("l")
	tt.sees("\nexercises/my/01-add\n", "Hint 3 of 3")

	code := func(expression string) string {
		return "package small\n\nfunc Add(a, b int) int { return " + expression + " }\n"
	}
	const mine = "exercises/my/01-add/controller.go"
	r.write(mine, code("a +* b"))
	tt.sees("✗ does not compile in ", "The code does not compile.\n\ncontroller.go:3:38: invalid operation", "Hint 1 of 3")
	r.write(mine, code("a * b"))
	tt.sees("✗ failed in ", "────\nIt subtracts\n")
	tt.setSize(40, 20)
	tt.sees("\n1 and 2 made something else.\n\nHint 1 of 3\n", "n next   h hint   v view   l list\nr run   x reset   q quit")
	tt.setSize(100, 30)
	tt.press("x")
	tt.sees("Reset 01-add? Your changes will be lost.   y yes   any other key: no")
	tt.press("y")
	tt.sees("✗ failed in ", "\n\nIt subtracts\n", "─────\n1 and 2 made")
	copied, err := os.ReadFile(filepath.Join(r.dir, mine))
	require.NoError(t, err)
	require.Equal(t, code("a - b"), string(copied))

	require.NoError(t, os.Remove(filepath.Join(r.dir, mine)))
	tt.sees("✗ does not compile in ", "controller.go is missing from your copy.")
	r.write(mine+".tmp", code("a + b"))
	require.NoError(t, os.Rename(filepath.Join(r.dir, mine+".tmp"), filepath.Join(r.dir, mine))) // as many editors save
	tt.sees("✓ passed in ", " 1/2\n", "exercises/my/01-add/solution", "n opens the next exercise.")
	tt.press("n")
	tt.sees("02-more  █", "\nexercises/my/02-more\n✗ failed in ")
	tt.press("q")
	require.Zero(t, tt.requireRestored())
	require.Empty(t, strings.TrimSpace(tt.text()), "what it has shown is gone")
	require.Contains(t, r.exercises(0, "list"), "  ✓  1  It subtracts\n>    2  It subtracts\n")
	r.requireNothingLeft()
}

// page waits until the screen shows the address of the page that draws the last check.
func (tt *terminal) page() (url string) {
	tt.t.Helper()
	tt.sees("The last check, drawn: http://127.0.0.1:")
	return pageURL.FindString(tt.text())
}

var pageURL = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/[A-Z2-7]+/`)

// v shows where the last check is drawn, and the page follows. It ends with the screen.
func TestDrawExercisesInATerminal(t *testing.T) {
	r := newExercises(t)
	tt := r.openTerminal(100, 30, "exercises")
	tt.sees("01-add", "… checking")
	tt.press("v")
	url := tt.page()
	draws := func(name string) {
		t.Helper()
		tt.await(func() bool {
			response, err := http.Get(url + "model")
			require.NoError(t, err)
			defer response.Body.Close()
			model, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			return strings.Contains(string(model), `"`+name+`"`) && strings.Contains(string(model), `"the last check"`)
		}, func() string { return "the page does not show " + name })
	}
	draws("sum--1")
	r.write("exercises/my/01-add/controller.go", "package small\n\nfunc Add(a, b int) int { return a * b }\n")
	draws("sum-2")
	r.write("exercises/my/01-add/controller.go", "package small\n")
	tt.sees("✗ does not compile in ", "made no request; the page shows the one before.")
	draws("sum-2")
	tt.press("v")
	require.Equal(t, url, tt.page())
	tt.press("q")
	require.Zero(t, tt.requireRestored())
	r.requireNothingLeft()
	_, err := http.Get(url)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// Whatever the program is doing, it ends and leaves nothing behind.
func TestQuitExercisesAtAnyMoment(t *testing.T) {
	const hang = "sleep 1000 & echo $$ $! > $PIDS.new; mv $PIDS.new $PIDS; wait" // the file is complete when it is there
	at := map[string]func(r *repository, tt *terminal){
		"at the start":            func(*repository, *terminal) {},
		"when the screen appears": func(_ *repository, tt *terminal) { tt.sees("01-add") },
		"in the list": func(_ *repository, tt *terminal) {
			tt.sees("01-add")
			tt.press("l")
			tt.sees("enter open")
		},
		"before a reset": func(_ *repository, tt *terminal) {
			tt.sees("01-add")
			tt.press("x")
			tt.sees("any other key: no")
		},
		"while a browser follows": func(r *repository, tt *terminal) {
			tt.sees("01-add")
			tt.press("v")
			response, err := http.Get(tt.page() + "changes")
			require.NoError(r.t, err)
			r.t.Cleanup(func() { response.Body.Close() })
		},
		"while the code compiles": func(_ *repository, tt *terminal) { tt.sees("… checking") },
		"while the code runs":     func(_ *repository, tt *terminal) { tt.sees("… checking") },
	}
	prepare := map[string]func(r *repository) (hangs bool){
		"while the code compiles": func(r *repository) bool {
			bin := r.t.TempDir()
			require.NoError(r.t, os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\necho temporary > $GOTMPDIR/go-build\n"+hang+"\n"), 0o700))
			r.env = append(r.env, "PATH="+bin+":"+os.Getenv("PATH"))
			return true
		},
		"while the code runs": func(r *repository) bool {
			r.write("exercises/my/01-add/controller.go", "package small\n\nimport \"os/exec\"\n\nfunc Add(a, b int) int {\n\t_ = exec.Command(\"sh\", \"-c\", "+
				strconv.Quote(strings.ReplaceAll(hang, "$PIDS", filepath.Join(r.dir, "pids")))+").Run()\n\treturn a + b\n}\n")
			return true
		},
	}
	how := map[string]func(tt *terminal){
		"Ctrl-C":  func(tt *terminal) { tt.press(ctrlC) },
		"SIGTERM": func(tt *terminal) { require.NoError(tt.t, tt.cmd.Process.Signal(syscall.SIGTERM)) },
	}
	for when, reach := range at {
		for name, quit := range how {
			t.Run(name+" "+when, func(t *testing.T) {
				r := newExercises(t)
				pids := filepath.Join(r.dir, "pids")
				r.env = append(r.env, "PIDS="+pids)
				hangs := prepare[when] != nil && prepare[when](r)
				tt := r.openTerminal(80, 24, "exercises")
				reach(r, tt)
				if hangs {
					tt.await(func() bool { return exists(pids) }, func() string { return "there is no " + pids })
				}
				quit(tt)
				require.Contains(t, []int{0, 130, -1}, tt.requireRestored(), "-1: by the signal, at the very start")
				r.requireNothingLeft()
				if !hangs {
					return
				}
				text, err := os.ReadFile(pids)
				require.NoError(t, err)
				for _, pid := range strings.Fields(string(text)) {
					id, err := strconv.Atoi(pid)
					require.NoError(t, err)
					requireGone(t, id)
				}
			})
		}
	}
}

// In a terminal, a lesson waits before each command. Who presses Enter too early loses neither a line nor a pause.
func TestLessonInATerminal(t *testing.T) {
	r := newRepository(t, "$ until [ -e go ]; do sleep 0.01; done", "$ echo two", "two", "$ echo three", "three")
	tt := r.openTerminal(100, 30, "lesson", "1")
	const prompt = "\nEnter: run this · s: shell · a: run the rest · q: quit"
	tt.sees("$ until [ -e go ]; do sleep 0.01; done" + prompt)
	tt.press("\r")
	tt.await(func() bool { return !strings.Contains(tt.text(), prompt) }, func() string { return "the prompt is still there" })
	tt.press("\r\rq\r")
	tt.sees("done\n\n\nq\n") // the terminal has received it
	r.write("01-mini/go", "")
	tt.sees("$ echo two" + prompt)

	tt.press("s\r")
	tt.sees("A shell on this cluster, with kubectl; exit comes back.\n01-mini $")
	tt.press("kubectl config view --minify --output jsonpath='{..namespace}'; (exit 3)\r")
	tt.sees("\n" + r.namespace + "01-mini $")
	tt.press("echo $((6 * 7)); sleep 1000\r")
	tt.sees("\n42\n")
	tt.press(ctrlC)
	tt.sees("^C\n01-mini $")
	tt.press("exit 4\r")
	tt.sees("exit\n$ echo two" + prompt)
	tt.press("a\r")
	tt.sees("\ntwo\n$ echo three\nthree\n", "Lesson 1 is over: 3 commands")
	require.Zero(t, tt.requireRestored())
	r.requireNothingLeft()
}

// A command in the background would be stopped by the kernel, for ever, when it reads from the terminal.
func TestRunInATerminal(t *testing.T) {
	r := newRepository(t, "$ true")
	tt := r.openTerminal(80, 24, "run", "--nodes=0", "--", "sh", "-c", "if read line; then echo got:$line; else echo end of input; fi")
	tt.sees("end of input")
	require.Zero(t, tt.requireRestored())
	r.requireNothingLeft()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

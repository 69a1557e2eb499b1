package play_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/play"
)

func TestMain(m *testing.M) {
	guard.Main()
	if page := os.Getenv("PLAY_PAGE"); page != "" {
		playAlone(page)
	}
	// The guards are this binary too, and one with the race detector takes a second to end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	// The syntax highlighter's clock, which stops by itself.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// playAlone is this test binary as a program that plays a page.
func playAlone(path string) {
	page, err := play.Read(path)
	if err == nil {
		_, err = (&play.Player{Out: os.Stdout, Scratch: os.Getenv("PLAY_SCRATCH")}).Play(context.Background(), page)
	}
	fmt.Println("played:", err)
	os.Exit(0)
}

func ExamplePlayer_Play() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "README.md")
	text := "Who is there?\n\n```console\n$ name=world\n$ echo \"hello, $name\"\nhello, ...\n```\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	page, err := play.Read(path)
	if err != nil {
		panic(err)
	}
	player := play.Player{Out: os.Stdout, Scratch: dir}
	result, err := player.Play(context.Background(), page)
	fmt.Println(result.Commands, "commands, error:", err)
	// Output:
	// Who is there?
	//
	// $ name=world
	// $ echo "hello, $name"
	// hello, world
	// 2 commands, error: <nil>
}

// playText plays a page, whose fences are marked with ”' , and returns what it showed.
func playText(t *testing.T, ctx context.Context, player play.Player, text string) (screen string, result play.Result, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "README.md")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "'''", "```")), 0o600))
	page, err := play.Read(path)
	require.NoError(t, err)
	var out bytes.Buffer
	player.Out, player.Scratch = &out, t.TempDir()
	result, err = player.Play(ctx, page)
	return out.String(), result, err
}

func console(lines ...string) string {
	return "'''console\n" + strings.Join(lines, "\n") + "\n'''\n"
}

func TestPlays(t *testing.T) {
	for name, text := range map[string]string{
		"a shell that keeps its state": console("$ f() { echo \"f of $1\"; }", "$ cd /", "$ x=1") + "prose\n" +
			console("$ f \"$x\"; pwd", "f of 1", "/"),
		"a command of several lines":       console("$ for i in 1 2; do", "> echo $i", "> done", "1", "2"),
		"a document in a command":          console("$ cat <<EOF", "> hello", "> EOF", "hello"),
		"standard error":                   console("$ echo oops >&2", "oops"),
		"a failure that the page foresees": console("$ (exit 3)", "(exit status 3)"),
		"output without a line break":      console("$ printf hello", "hello"),
		"empty lines":                      console("$ printf 'a\\n\\nb\\n\\n'", "a", "", "b", ""),
		"no output":                        console("$ true", "$ true"),
		"nothing to read":                  console("$ cat", "$ read x", "(exit status 1)"),
		"a line that looks like a log":     console("$ echo 'a | b'", "a | b"),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := playText(t, t.Context(), play.Player{}, text)
			require.NoError(t, err)
		})
	}
}

func TestShowsWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"other output": {
			console("$ printf 'a\\nx\\nc\\n'", "a", "b", "c"),
			`README.md:2: the output is not what the page says (-: page, +: real)
  $ printf 'a\nx\nc\n'
      a
    - b
    + x
      c`},
		"a command that fails": {
			console("$ echo why; false"),
			`README.md:2: the command failed with exit status 1 (-: page, +: real)
  $ echo why; false
    + why
    + (exit status 1)`},
		"a command that should have failed": {
			console("$ true", "(exit status 1)"), "- (exit status 1)"},
		"a command that there is none of": {
			console("$ no-such-command"), "no-such-command: command not found"},
		"a command that is no command": {
			console("$ if"), "the command failed with exit status"},
		"the end of the shell": {
			console("$ exit 0"), `the page's shell has ended; a page's command must not "exit"`},
		"a background command that is no command": {
			console("$ if &"), "bash does not accept the command"},
		"a background command that ends by itself": {
			// It may be noticed before the next command, or during it.
			console("$ sh -c 'echo last words; exit 7' &", "sh | last words", "$ sleep 300"),
			"\n    the last lines of its log:\n    last words"},
		"a background command that ends before it is known to run": {
			console("$ trap 'sleep 0.5' DEBUG", "$ sh -c 'echo last words; exit 7' &", "sh | last words", "$ sleep 300"),
			"\n    the last lines of its log:\n    last words"},
		"a background command that is killed before it says what it should": {
			console("$ sleep 300 &", "$ kill -9 %1", "$ true", "sleep | never"),
			"sleep was ended before it logged what the page says"},
		"a name that is in use": {
			console("$ sleep 300 &", "$ sleep 301 &"), "sleep is still running after"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := playText(t, t.Context(), play.Player{Grace: time.Second}, test.text)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// What nearly matches does not match.
func TestRejectsNearMisses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"a failure at the end of any output":    {console("$ echo a; false", "..."), "the command failed with exit status 1"},
		"a failure without output":              {console("$ false", "..."), "the command failed with exit status 1"},
		"a failure after the lines of the page": {console("$ echo a; echo b; (exit 3)", "a", "..."), "+ (exit status 3)"},
		"a failure between lines of logs": {
			console("$ sh -c 'echo one; sleep 300' &", "$ false", "...", "sh | one"), "the command failed with exit status 1"},
		"another exit status":                 {console("$ echo a; (exit 2)", "...", "(exit status 1)"), "- (exit status 1)"},
		"any exit status":                     {console("$ (exit 2)", "(exit status ...)"), "the command failed with exit status 2"},
		"an exit status that is printed":      {console("$ echo '(exit status 1)'", "(exit status 1)"), "the output is not what the page says"},
		"an exit status that is only printed": {console("$ echo '(exit status 1)'", "...", "(exit status 1)"), "- (exit status 1)"},
		"a line that begins otherwise":        {console("$ echo 'xpod/a created'", "pod/a ..."), "- pod/a ..."},
		"a line that ends otherwise":          {console("$ echo 'pod/a created?'", "pod/... created"), "- pod/... created"},
		"a missing first line":                {console("$ echo b", "a", "b", "..."), "- a"},
		"a missing last line":                 {console("$ echo a", "...", "a", "b"), "- b"},
		"a missing last line, which is empty": {console("$ echo a", "a", "", ""), "- "},
		"one line more":                       {console("$ printf 'a\nb\n'", "a"), "+ b"},
		"one log line awaited twice": {
			console("$ sh -c 'echo one; echo two; exec sleep 300' &", "sh | one", "sh | one"), "the log of sh has no such line"},
		"log lines in another order": {
			console("$ sh -c 'echo one; echo two; exec sleep 300' &", "sh | two", "sh | one"), "the log of sh has no such line"},
		"a background command that succeeds": {
			console("$ sh -c 'echo one; exit 0' &", "sh | one", "$ sleep 300"), "sh ended by itself, with exit status 0"},
		"the log of another command": {
			console("$ sh -c 'echo one; exec sleep 300' &", "$ echo one", "one", "bash | one"), "- bash | one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The limit only ends the wait for a line that does not come. On a busy machine, a command may not have started by then.
			for limit := time.Second; ; limit *= 2 {
				_, _, err := playText(t, t.Context(), play.Player{Limit: limit}, test.text)
				if err != nil && limit < time.Minute &&
					(strings.Contains(err.Error(), "still running after") || strings.Contains(err.Error(), "has not been started")) {
					continue
				}
				require.ErrorContains(t, err, test.want)
				break
			}
		})
	}
}

func TestWaitsNoLongerThanTheLimit(t *testing.T) {
	// What the command has printed until then is shown. On a busy machine, that may take more than one limit.
	for limit := 250 * time.Millisecond; ; limit *= 2 {
		_, _, err := playText(t, t.Context(), play.Player{Limit: limit}, console("$ echo so far; sleep 300"))
		require.ErrorContains(t, err, fmt.Sprintf("the command is still running after %s\n  $ echo so far; sleep 300\n", limit))
		if strings.HasSuffix(err.Error(), "\n    so far") {
			break
		}
	}
	for limit := 250 * time.Millisecond; ; limit *= 2 {
		_, _, err := playText(t, t.Context(), play.Player{Limit: limit}, console("$ sh -c 'echo one; exec sleep 300' &", "sh | two"))
		if strings.Contains(err.Error(), "- sh | two\n    the last lines of it:\n    one") {
			require.ErrorContains(t, err, fmt.Sprintf("the log of sh has no such line after %s", limit))
			break
		}
	}
	// The second command is not started before the first has ended.
	for limit := 250 * time.Millisecond; ; limit *= 2 {
		_, _, err := playText(t, t.Context(), play.Player{Limit: limit, Grace: time.Minute}, console("$ sleep 300 &", "$ sleep 301 &"))
		require.ErrorContains(t, err, fmt.Sprintf("the command has not been started after %s\n", limit))
		if strings.Contains(err.Error(), "$ sleep 301") {
			break
		}
	}
}

// counter is a background command that counts, and says goodbye when it is asked to end.
const counter = `$ bash -c 'trap "echo goodbye; exit" TERM; for i in $(seq 1 100000); do echo "count $i"; sleep 0.01; done' &`

func TestBackground(t *testing.T) {
	screen, result, err := playText(t, t.Context(), play.Player{}, console(
		counter,
		"bash | count 1",
		"bash | count 3",
		"$ echo meanwhile",
		"meanwhile",
		"bash | count ...0",
		"$ kill %1",
		"bash | goodbye",
		counter,
		"bash | count 1",
	))
	require.NoError(t, err)
	require.Equal(t, 4, result.Commands)
	require.Contains(t, screen, "\nbash | count 3\n")
	require.Equal(t, 2, strings.Count(screen, "bash | goodbye"), "it is asked to end when the page does")
}

// A page's commands find neither the caller's clusters and accounts nor what the caller has turned on.
func TestAPageGetsAnEnvironmentOfItsOwn(t *testing.T) {
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "OS_AUTH_URL", "KUBE_CACHE_MUTATION_DETECTOR", "NAMED", "NAMED_TOO"} {
		t.Setenv(name, "the caller's")
	}
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	screen, _, err := playText(t, t.Context(), play.Player{Env: []string{"GIVEN=yes"}},
		"<!-- env: NAMED -->\nProse.\n\n<!-- env: NAMED_TOO NOT_SET -->\nMore.\n"+
			console("$ env | grep 'the caller' | sort", "NAMED=the caller's", "NAMED_TOO=the caller's", "$ echo $GIVEN", "yes",
				"$ test \"$HOME\" != "+home+" && test ! -e \"$HOME/.kube\"", "$ command -v sh", "..."))
	require.NoError(t, err)
	require.NotContains(t, screen, "<!--")
}

// A daemon that a page has left behind, with the log's pipe open, does not keep a page that fails from ending.
func TestADaemonHoldsALog(t *testing.T) {
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip("a daemon: ", err)
	}
	play.WaitForDaemons(t, 10*time.Millisecond)
	pids := filepath.Join(t.TempDir(), "pid")
	t.Cleanup(func() {
		text, err := os.ReadFile(pids)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		daemon, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, daemon.Kill(), "it has been running")
	})
	_, _, err = playText(t, t.Context(), play.Player{},
		console("$ sh -c '"+setsid+" --fork sh -c \"echo \\$\\$ >"+pids+"; exec sleep 1000\"; until [ -s "+pids+" ]; do sleep 0.01; done; echo left behind; exec sleep 300' &", "sh | left behind", "$ false"))
	require.ErrorContains(t, err, "the command failed with exit status 1")
}

func TestCountsWhatItChecked(t *testing.T) {
	_, result, err := playText(t, t.Context(), play.Player{}, console("$ echo a", "a", "$ seq 3", "1", "..."))
	require.NoError(t, err)
	require.Equal(t, 2, result.Commands)
	require.Equal(t, 3, result.Checked)
	require.NotZero(t, result.Duration)
}

func TestPausesBeforeEachCommand(t *testing.T) {
	pauses := 0
	player := play.Player{Pause: func(context.Context) error {
		if pauses++; pauses == 2 {
			return play.ErrQuit
		}
		return nil
	}}
	screen, result, err := playText(t, t.Context(), player, console("$ echo first", "first", "$ echo second", "second"))
	require.ErrorIs(t, err, play.ErrQuit)
	require.Equal(t, 1, result.Commands)
	const prompt = "Enter: run this\n"
	require.Equal(t, "$ echo first\n"+prompt+"first\n$ echo second\n"+prompt, screen, "a command is shown before the pause")
}

// A reader who is in a hurry is not asked again; one who has done something else is.
func TestHurryAndAgain(t *testing.T) {
	answers := []error{play.ErrAgain, nil, play.ErrHurry}
	player := play.Player{Keys: " · keys", Pause: func(context.Context) error {
		answer := answers[0] // there are no more pauses than these
		answers = answers[1:]
		return answer
	}}
	screen, result, err := playText(t, t.Context(), player, console("$ echo 1", "1", "$ echo 2", "2", "$ echo 3", "3"))
	require.NoError(t, err)
	require.Equal(t, 3, result.Commands)
	const prompt = "Enter: run this · keys\n"
	require.Equal(t, "$ echo 1\n"+prompt+"$ echo 1\n"+prompt+"1\n$ echo 2\n"+prompt+"2\n$ echo 3\n3\n", screen)
}

// While the reader reads, nothing moves; what was logged meanwhile comes after.
func TestLogsWaitForTheReader(t *testing.T) {
	dir := t.TempDir()
	started, logged := filepath.Join(dir, "started"), filepath.Join(dir, "logged")
	pauses := 0
	player := play.Player{Pause: func(context.Context) error {
		if pauses++; pauses == 2 {
			require.NoError(t, os.WriteFile(started, []byte("\n"), 0o600))
			waitForFile(logged)
		}
		return nil
	}}
	text := console(
		"$ bash -c 'until [ -e "+started+" ]; do sleep 0.01; done; for i in $(seq 20); do echo line $i; done; echo > "+logged+"; sleep 300' &",
		"$ echo hello", "hello", "bash | line 20", "$ true")
	screen, _, err := playText(t, t.Context(), player, text)
	require.NoError(t, err)
	_, after, _ := strings.Cut(screen, "$ echo hello\nEnter: run this\n")
	require.NotContains(t, strings.TrimSuffix(screen, after), "bash | ", "%s", screen)
	require.Contains(t, after, "bash | line 20\n")
	require.Contains(t, after, "more lines)\n")
}

// A log that never stops leaves room for the page. The lines that the page awaits are always shown.
func TestLongLogsAreSummedUp(t *testing.T) {
	screen, _, err := playText(t, t.Context(), play.Player{}, console(
		"$ bash -c 'for i in $(seq 100); do echo line $i; done; sleep 300' &",
		"bash | line 50",
		"bash | line 100",
		"$ kill %1",
	)+"The end.\n")
	require.NoError(t, err)
	_, log, _ := strings.Cut(screen, "&\n")
	var want []string
	for i := range 12 {
		want = append(want, fmt.Sprintf("bash | line %d", i+1))
	}
	want = append(want, "bash | (37 more lines)", "bash | line 50", "bash | (49 more lines)", "bash | line 100", "$ kill %1")
	require.Equal(t, want, strings.Split(log, "\n")[:len(want)])
}

// A kubectl that has seen what it waited for cancels its watch. If an event arrives then, client-go logs a warning.
func TestIgnoresWarningsAboutWatchesThatAreNoLongerNeeded(t *testing.T) {
	const header = `I1128 20:02:25.693972   23514 reflector.go:664] "Warning: watch ended with error" reflector="reflector.go:343" `
	for cause, ignored := range map[string]bool{
		`unable to decode an event from the watch stream: context canceled`:                    true,
		`unable to decode an event from the watch stream: http2: client connection lost`:       false,
		`unable to decode an event from the watch stream: context deadline exceeded, as it is`: false,
	} {
		_, _, err := playText(t, t.Context(), play.Player{Grace: time.Second}, console("$ echo '"+header+`err="`+cause+`"'`+"; echo met", "met"))
		if ignored {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, cause)
		}
	}
}

func TestACommandThatDoesNotEndWhenAskedIsAnErrorAndIsKilled(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	_, _, err := playText(t, t.Context(), play.Player{Grace: 300 * time.Millisecond}, console(
		"$ bash -c 'trap \"\" TERM; echo $$ > "+pid+"; echo deaf; while true; do sleep 1; done' &",
		"bash | deaf",
	))
	require.ErrorContains(t, err, "bash is still running after 300ms")
	requireGone(t, pid)
}

// What a command has written until it was killed is on the screen when Play returns.
func TestShowsTheLastWordsOfACommandThatIsKilled(t *testing.T) {
	asked, printed := filepath.Join(t.TempDir(), "asked"), filepath.Join(t.TempDir(), "printed")
	screen, _, err := playText(t, t.Context(), play.Player{}, console(
		fmt.Sprintf("$ bash -c 'echo started; until [ -e %s ]; do sleep 0.01; done; for i in {1..100}; do echo still here; done; touch %s; sleep 300' &", asked, printed),
		"bash | started",
		fmt.Sprintf("$ touch %s; until [ -e %s ]; do sleep 0.01; done; false", asked, printed),
	))
	require.ErrorContains(t, err, "exit status 1")
	require.Regexp(t, `\(\d+ more lines\)\n(bash \| still here\n){3}$`, screen)
}

// leavesBehind starts a process in the background, and one more in the background of that.
func leavesBehind(t *testing.T) (text string, pids []string) {
	dir := t.TempDir()
	pids = []string{filepath.Join(dir, "job"), filepath.Join(dir, "grandchild"), filepath.Join(dir, "foreground")}
	return console(
		fmt.Sprintf("$ bash -c 'sleep 301 & echo $! > %s; echo $$ > %s; echo started; wait' &", pids[1], pids[0]),
		"bash | started",
		fmt.Sprintf("$ bash -c 'echo $$ > %s; echo hanging; sleep 302'", pids[2]),
		"hanging",
	), pids
}

func TestLeavesNothingBehindWhenInterrupted(t *testing.T) {
	text, pids := leavesBehind(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		waitForFile(pids[2])
		cancel(errors.New("Ctrl-C"))
	}()
	_, _, err := playText(t, ctx, play.Player{}, text)
	require.ErrorContains(t, err, "Ctrl-C")
	requireGone(t, pids...)
}

// Before a background command is started, the player waits for the end of one that has the same name.
func TestInterruptedWhileACommandIsStarted(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupt := errors.New("Ctrl-C")
	go func() {
		waitForFile(mark)
		cancel(interrupt)
	}()
	_, _, err := playText(t, ctx, play.Player{Grace: time.Minute}, console("$ sleep 300 &", "$ echo > "+mark, "$ sleep 301 &"))
	require.ErrorIs(t, err, interrupt)
	require.NotErrorAs(t, err, new(*play.MismatchError), "the page is not wrong")
}

func TestLeavesNothingBehindWhenKilled(t *testing.T) {
	text, pids := leavesBehind(t)
	dir := t.TempDir()
	path, scratch := filepath.Join(dir, "README.md"), filepath.Join(dir, "scratch")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "'''", "```")), 0o600))
	require.NoError(t, os.Mkdir(scratch, 0o700))
	player := exec.Command(os.Args[0])
	player.Env = append(os.Environ(), "PLAY_PAGE="+path, "PLAY_SCRATCH="+scratch)
	require.NoError(t, player.Start())
	waitForFile(pids[2])
	require.NoError(t, player.Process.Kill())
	require.Error(t, player.Wait())
	requireGone(t, pids...)
	eventually(t, "the scratch directory is still there", func() bool {
		_, err := os.Stat(scratch)
		return errors.Is(err, os.ErrNotExist)
	})
}

func waitForFile(path string) {
	for {
		if text, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(text), "\n") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// requireGone waits until the processes whose IDs are in the files have ended.
func requireGone(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		eventually(t, filepath.Base(file)+" is still running", func() bool {
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
		})
	}
}

func eventually(t *testing.T, complaint string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, time.Minute, 10*time.Millisecond, complaint)
}

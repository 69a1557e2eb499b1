package guard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain makes the test binary a guard, or a program that exits with a status, hangs, or makes a directory, when it is
// asked to be.
func TestMain(m *testing.M) {
	Main()
	switch {
	case len(os.Args) == 3 && os.Args[1] == "exit-with":
		status, _ := strconv.Atoi(os.Args[2])
		os.Exit(status)
	case len(os.Args) == 3 && os.Args[1] == "hang":
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			panic(err)
		}
		if err := os.WriteFile(os.Args[2], []byte(strconv.Itoa(child.Process.Pid)+"\n"), 0o600); err != nil {
			panic(err)
		}
		time.Sleep(time.Hour)
	case len(os.Args) == 2 && os.Args[1] == "temp-dir":
		dir, _, err := TempDir("guard-test-")
		if err != nil {
			panic(err)
		}
		fmt.Println(dir)
		time.Sleep(time.Hour)
	case len(os.Args) == 4 && os.Args[1] == "await-interrupt":
		interrupts := make(chan os.Signal, 1)
		signal.Notify(interrupts, os.Interrupt)
		AwaitInterrupt()
		if err := os.WriteFile(os.Args[2], []byte("ready\n"), 0o600); err != nil {
			panic(err)
		}
		<-interrupts
		status, err := strconv.Atoi(os.Args[3])
		if err != nil { // it has been told to hang
			time.Sleep(time.Hour)
		}
		os.Exit(status)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each guard takes a second to end
	os.Exit(m.Run())
}

func TestRerunReturnsTheExitStatus(t *testing.T) {
	for _, want := range []int{0, 7} {
		status, err := Rerun(t.Context(), "exit-with", strconv.Itoa(want))
		require.NoError(t, err)
		require.Equal(t, want, status)
	}
}

func TestRerunEndsWhatTheProgramHasStarted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	var pid int
	go func() {
		defer cancel(enough)
		for !strings.HasSuffix(readFile(file), "\n") && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		pid, _ = strconv.Atoi(strings.TrimSpace(readFile(file)))
	}()
	_, err := rerun(ctx, 10*time.Millisecond, "hang", file)
	require.ErrorIs(t, err, enough)
	require.NotZero(t, pid)
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, time.Minute, 10*time.Millisecond)
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestExec(t *testing.T) {
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	run := func(ctx context.Context, script string) (status int, out string, err error) {
		var text strings.Builder
		status, err = Exec(ctx, Program{Path: sh, Args: []string{"-c", script}, Dir: t.TempDir(), Env: []string{"NAME=value"}, Remove: t.TempDir()}, &text)
		return status, text.String(), err
	}
	status, out, err := run(t.Context(), "echo $NAME; echo error >&2; cat; exit 7")
	require.NoError(t, err)
	require.Equal(t, 7, status)
	require.Equal(t, "value\nerror\n", out)

	t.Run("does not wait for what a program leaves running", func(t *testing.T) {
		status, out, err := run(t.Context(), "sleep 1000 & echo $!")
		require.NoError(t, err)
		require.Zero(t, status)
		pid, err := strconv.Atoi(strings.TrimSpace(out))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, time.Minute, 10*time.Millisecond)
	})
	t.Run("can be cancelled", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ready")
		_, out, err := run(interruptWhenReady(t, file), "echo started; echo ready > "+file+"; sleep 1000")
		require.ErrorIs(t, err, errInterrupted)
		require.Equal(t, "started\n", out)
	})
	t.Run("does not start a program when ctx has ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, out, err := run(ctx, "echo started")
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, out)
	})
	t.Run("reports a program that cannot be started", func(t *testing.T) {
		var out strings.Builder
		status, err := Exec(t.Context(), Program{Path: filepath.Join(t.TempDir(), "none"), Remove: t.TempDir()}, &out)
		require.NoError(t, err)
		require.Equal(t, 1, status)
		require.Contains(t, out.String(), "no such file")
	})
}

// interruptWhenReady returns a context that ends when a program has written its file.
func interruptWhenReady(t *testing.T, file string) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for readFile(file) != "ready\n" && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		cancel(errInterrupted)
	}()
	return ctx
}

var errInterrupted = errors.New("interrupted in the test")

// An interrupted program may report and clean up before it exits.
func TestRerunPassesOnAnInterrupt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ready")
	status, err := Rerun(interruptWhenReady(t, file), "await-interrupt", file, "7")
	require.NoError(t, err)
	require.Equal(t, 7, status)
}

func TestRerunKillsAnInterruptedProgram(t *testing.T) {
	t.Run("that does not end in time", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ready")
		_, err := rerun(interruptWhenReady(t, file), 10*time.Millisecond, "await-interrupt", file, "hang")
		require.ErrorIs(t, err, errInterrupted)
	})
	t.Run("at the second Ctrl-C", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ready")
		ignored := make(chan os.Signal, 1) // or this process would end before Rerun handles the signal
		signal.Notify(ignored, os.Interrupt)
		defer signal.Stop(ignored)
		ctx := interruptWhenReady(t, file)
		over := make(chan struct{})
		go func() {
			<-ctx.Done()
			for {
				select {
				case <-over:
					return
				case <-time.After(10 * time.Millisecond):
					_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
				}
			}
		}()
		_, err := rerun(ctx, time.Hour, "await-interrupt", file, "hang")
		close(over)
		require.ErrorIs(t, err, errInterrupted)
	})
}

func TestTempDir(t *testing.T) {
	t.Run("is removed on request", func(t *testing.T) {
		dir, remove, err := TempDir("guard-test-")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		require.NoError(t, remove())
		require.NoDirExists(t, dir)
	})
	t.Run("is removed when the program is killed", func(t *testing.T) {
		program := exec.Command(os.Args[0], "temp-dir")
		out, err := program.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, program.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		dir := strings.TrimSpace(line)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		require.NoError(t, program.Process.Kill())
		require.Error(t, program.Wait())
		require.Eventually(t, func() bool {
			_, err := os.Stat(dir)
			return errors.Is(err, os.ErrNotExist)
		}, time.Minute, 10*time.Millisecond)
	})
	t.Run("reports that it cannot be made", func(t *testing.T) {
		t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
		_, _, err := TempDir("guard-test-")
		require.ErrorContains(t, err, "no such file or directory")
	})
}

func readFile(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

// A process that is missing in one list of the session's processes is found in the next.
func TestEndLooksTwice(t *testing.T) {
	missed := exec.Command("sleep", "1000")
	require.NoError(t, missed.Start())
	t.Cleanup(func() { _ = missed.Process.Kill() }) // it should have ended
	lists := [][]int{{}, {missed.Process.Pid}, {}, {}}
	require.NoError(t, end(func() ([]int, error) {
		next := lists[0]
		lists = lists[1:]
		return next, nil
	}))
	require.Empty(t, lists)
	require.ErrorContains(t, missed.Wait(), "signal: terminated")
}

func TestEndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		const nobody = 1 << 30
		err := end(func() ([]int, error) { return []int{nobody}, nil })
		require.EqualError(t, err, "processes [1073741824] are still running after SIGKILL")
		require.GreaterOrEqual(t, time.Since(begin), time.Minute)
	})
}

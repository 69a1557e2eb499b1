package guard

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain makes the test binary a guard, or a program that exits with a status or hangs, when it is asked to be.
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
	_, err := Rerun(ctx, "hang", file)
	require.ErrorIs(t, err, enough)
	require.NotZero(t, pid)
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, time.Minute, 10*time.Millisecond)
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
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

package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/proc"
)

// After Ctrl-C, the program that reads our output may have ended before we have cleaned up.
func TestWritesToAClosedPipe(t *testing.T) {
	const variable = "PROC_TEST_FILE"
	if path := os.Getenv(variable); path != "" { // the program
		proc.Context()
		fmt.Fprintln(os.Stderr, "cleaning up")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return
	}
	path := filepath.Join(t.TempDir(), "cleaned")
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer writer.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestWritesToAClosedPipe$")
	cmd.Env = append(os.Environ(), variable+"="+path)
	cmd.Stderr = writer
	require.NoError(t, cmd.Run())
	require.FileExists(t, path)
}

// A program that was started by nohup runs on when its terminal is closed.
func TestContextUnderNohup(t *testing.T) {
	const variable = "PROC_TEST_NOHUP"
	if os.Getenv(variable) != "" { // the program
		ctx := proc.Context()
		require.True(t, signal.Ignored(syscall.SIGHUP), "SIGHUP is no longer ignored")
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		require.NoError(t, ctx.Err())
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		<-ctx.Done()
		return
	}
	cmd := exec.Command("nohup", os.Args[0], "-test.run=^TestContextUnderNohup$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Without nohup, the end of its terminal ends it.
func TestContextEndsAtSIGHUP(t *testing.T) {
	const variable = "PROC_TEST_HANGUP"
	if os.Getenv(variable) != "" { // the program
		ctx := proc.Context()
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		<-ctx.Done()
		return
	}
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("these tests were started by nohup")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestContextEndsAtSIGHUP$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

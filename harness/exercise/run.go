package exercise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"example.com/controllers/harness/guard"
)

// guarded is a program to run, and the limits that it is subject to.
type guarded struct {
	program string
	args    []string
	dir     string        // working directory
	env     []string      // the whole environment
	remove  string        // removed if this process dies
	limit   time.Duration // after which the program is ended
}

// finished is how a program ended.
type finished struct {
	status   int
	timedOut bool
	output   *output // standard output and standard error
}

// runGuarded runs a program and everything that it starts under a guard, which ends them all.
func runGuarded(ctx context.Context, g guarded) (finished, error) {
	f := finished{output: &output{}}
	cmd, err := guard.Command(g.remove, g.program, g.args...)
	if err != nil {
		return f, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return f, err
	}
	defer reader.Close()
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = g.dir, g.env, writer, writer
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	null, err := os.Open(os.DevNull) // the guard hands file 3 on
	if err != nil {
		writer.Close()
		return f, err
	}
	defer null.Close()
	cmd.ExtraFiles = []*os.File{null}
	alive, err := cmd.StdinPipe()
	if err != nil {
		writer.Close()
		return f, err
	}
	err = cmd.Start()
	writer.Close()
	if err != nil {
		return f, fmt.Errorf("start the check: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(f.output, reader)
		ended <- err
	}()
	timeout := time.NewTimer(g.limit)
	defer timeout.Stop()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timeout.C:
		f.timedOut = true
	}
	_, _ = io.WriteString(alive, guard.Bye) // the guard may be gone
	alive.Close()                           // it ends what is still running
	waitErr := cmd.Wait()
	if f.timedOut {
		err = <-ended
	}
	f.status = cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if waitErr != nil && !errors.As(waitErr, &exit) {
		err = errors.Join(err, waitErr)
	}
	return f, err
}

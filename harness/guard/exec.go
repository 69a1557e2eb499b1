package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Program is a program that [Exec] runs.
type Program struct {
	Path string
	Args []string
	Dir  string   // working directory
	Env  []string // the whole environment
	// Remove is a directory that the guard removes if this process dies.
	Remove string
	// Started is called with the ID of the guard's process, of which the program is a child. It may be nil.
	Started func(guard int)
}

// Exec runs a program under a guard and returns its exit status. The program's standard output and standard error are written
// to out; its standard input is empty. Exec returns after every process of the program's session has ended.
//
// When ctx ends, Exec ends the program and everything that it has started, and the error is the cause of ctx.
func Exec(ctx context.Context, p Program, out io.Writer) (status int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	cmd, err := Command(p.Remove, p.Path, p.Args...)
	if err != nil {
		return 0, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.Dir, p.Env, writer, writer
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	null, err := os.Open(os.DevNull) // the guard hands file 3 on
	if err != nil {
		writer.Close()
		return 0, err
	}
	defer null.Close()
	cmd.ExtraFiles = []*os.File{null}
	alive, err := cmd.StdinPipe()
	if err != nil {
		writer.Close()
		return 0, err
	}
	err = cmd.Start()
	writer.Close()
	if err != nil {
		return 0, fmt.Errorf("start the guard: %w", err)
	}
	if p.Started != nil {
		p.Started(cmd.Process.Pid)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, reader)
		ended <- err
	}()
	// The guard closes its output when the program has ended, but itself ends only when we close the pipe. So the end of
	// the output is what to wait for.
	var copyErr error
	select {
	case copyErr = <-ended:
		ended <- nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_, _ = io.WriteString(alive, Bye) // the guard may have been killed
	alive.Close()
	waitErr := cmd.Wait()
	// A process that has left the session may still have the output open.
	_ = reader.SetReadDeadline(time.Now().Add(time.Second))
	if late := <-ended; !errors.Is(late, os.ErrDeadlineExceeded) {
		copyErr = errors.Join(copyErr, late)
	}
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) {
		waitErr = nil
	}
	if err == nil {
		err = errors.Join(copyErr, waitErr)
	}
	return cmd.ProcessState.ExitCode(), err
}

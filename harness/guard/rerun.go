package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// Rerun runs this program again with these arguments, under a guard that ends everything the program has started,
// however the program ends. It returns the program's exit status. The program writes to our standard output and standard error; its standard
// input is empty. If ctx ends first, so does the program, and the error is the context's cause.
func Rerun(ctx context.Context, args ...string) (status int, err error) {
	scratch, err := os.MkdirTemp("", "workshop-guard-")
	if err != nil {
		return 0, fmt.Errorf("make a directory for the guard: %w", err)
	}
	defer os.RemoveAll(scratch)
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find our own program: %w", err)
	}
	cmd, err := Command(scratch, self, args...)
	if err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull) // the file 3 that a guard hands on
	if err != nil {
		return 0, err
	}
	defer null.Close()
	cmd.ExtraFiles = []*os.File{null}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	// The guard closes its output when the program has ended, but itself ends only when we close the pipe. So the end
	// of the output is what to wait for.
	var output errgroup.Group
	for from, to := range map[*io.Writer]io.Writer{&cmd.Stdout: os.Stdout, &cmd.Stderr: os.Stderr} {
		reader, writer, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		defer writer.Close()
		*from = writer
		output.Go(func() error {
			defer reader.Close()
			_, err := io.Copy(to, reader)
			return err
		})
	}
	err = cmd.Start()
	for _, writer := range []io.Writer{cmd.Stdout, cmd.Stderr} {
		writer.(*os.File).Close()
	}
	if err != nil {
		return 0, fmt.Errorf("start the guard: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- output.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	_, _ = io.WriteString(alive, Bye) // the guard may have been killed
	alive.Close()
	err = errors.Join(err, cmd.Wait())
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

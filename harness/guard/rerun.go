package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// interruptLimit is how long a program may take to end after Rerun has passed an interrupt on to it.
const interruptLimit = 30 * time.Second

// Rerun runs this program again with these arguments, under a guard that ends everything the program has started,
// however the program ends. It returns the program's exit status. The program writes to our standard output and standard
// error; its standard input is empty.
//
// When ctx ends, Rerun interrupts the program, which must call [AwaitInterrupt] for that, and gives it half a minute to
// report and to clean up. After that, or at the next SIGINT or SIGTERM, it has the program killed, and the error is the
// cause of ctx.
func Rerun(ctx context.Context, args ...string) (status int, err error) {
	return rerun(ctx, interruptLimit, args...)
}

// scratchVariable is the name of an environment variable with the directory that [Scratch] returns.
const scratchVariable = "WORKSHOP_GUARD_SCRATCH"

// Scratch returns a directory for files that must not outlive this program, which [Rerun] has started: it is removed when
// the program has ended, even by SIGKILL. For a program that was started otherwise, it is "".
func Scratch() string { return os.Getenv(scratchVariable) }

// interruptFile is the file descriptor of a program under Rerun on which it is told of an interrupt: by the end of the
// file. The caller holds the other end.
const interruptFile = 3

// AwaitInterrupt lets [Rerun], which must have started this program, interrupt it: the program then gets SIGINT. It also
// gets SIGINT when Rerun's process dies. Call AwaitInterrupt once, after signal.Notify and before starting other programs.
func AwaitInterrupt() {
	syscall.CloseOnExec(interruptFile) // what we start must not hold it open
	told := os.NewFile(interruptFile, "interrupt")
	go func() {
		_, _ = io.Copy(io.Discard, told)
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	}()
}

func rerun(ctx context.Context, limit time.Duration, args ...string) (status int, err error) {
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
	cmd.Env = append(os.Environ(), scratchVariable+"="+scratch)
	told, interrupt, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer interrupt.Close()
	cmd.ExtraFiles = []*os.File{told} // becomes interruptFile, which the guard hands on
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		told.Close()
		return 0, err
	}
	// The guard closes its output when the program has ended, but itself ends only when we close the pipe. So the end
	// of the output is what to wait for.
	var output errgroup.Group
	for from, to := range map[*io.Writer]io.Writer{&cmd.Stdout: os.Stdout, &cmd.Stderr: os.Stderr} {
		reader, writer, err := os.Pipe()
		if err != nil {
			told.Close()
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
	told.Close()
	for _, writer := range []io.Writer{cmd.Stdout, cmd.Stderr} {
		writer.(*os.File).Close()
	}
	if err != nil {
		return 0, fmt.Errorf("start the guard: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- output.Wait() }()
	killed := false
	select {
	case err = <-ended:
	case <-ctx.Done():
		interrupt.Close()
		err, killed = awaitEnd(ended, limit)
	}
	_, _ = io.WriteString(alive, Bye) // the guard may have been killed
	alive.Close()
	err = errors.Join(err, cmd.Wait())
	if killed {
		return 0, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// awaitEnd waits until an interrupted program has ended. mustKill is true if it has not ended within limit, or before
// another signal came.
func awaitEnd(ended <-chan error, limit time.Duration) (err error, mustKill bool) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	const patience = 3 * time.Second
	hint := time.After(patience)
	timeout := time.After(limit)
	for {
		select {
		case err := <-ended:
			return err, false
		case <-hint:
			fmt.Fprintf(os.Stderr, "workshop: still stopping; Ctrl-C again kills everything now\n")
		case <-again:
			return nil, true
		case <-timeout:
			return nil, true
		}
	}
}

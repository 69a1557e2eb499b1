// Package proc keeps processes from outliving the one that started them.
//
//   - When the context of a command that [Group] has prepared is cancelled, its child processes end as well.
//   - A program that uses [Context] stops when its parent process dies, even by SIGKILL.
//
// It imports only the standard library, so that the program that builds all the others compiles quickly.
package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// Grace is the time between SIGTERM and SIGKILL.
const Grace = 2 * time.Second

// Group makes cmd, which must come from exec.CommandContext, run in a process group of its own. Ctrl-C in the
// terminal then reaches this process only, which decides what to stop, and when. When the context is cancelled, the
// whole group gets SIGTERM and, after [Grace], SIGKILL. The SIGKILL comes from this process; one that may exit before
// then calls [EndGroup].
func Group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		time.AfterFunc(Grace, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return ignoreGone(syscall.Kill(group, syscall.SIGTERM))
	}
	cmd.WaitDelay = Grace + time.Second
}

// EndGroup ends what is left of the process group of a command whose context was cancelled, and whose own process has
// exited: the others of the group, which have got SIGTERM from [Group], have [Grace] to exit before they get SIGKILL.
func EndGroup(cmd *exec.Cmd) {
	if cmd.Process == nil {
		return // it was never started
	}
	group := -cmd.Process.Pid
	for kill := time.Now().Add(Grace); time.Now().Before(kill); time.Sleep(20 * time.Millisecond) {
		if syscall.Kill(group, 0) != nil { // no process is left in it
			return
		}
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
}

// ignoreGone replaces ESRCH with the error by which a Cancel function tells os/exec that the process has ended.
func ignoreGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// WatchVariable is the name of an environment variable with the ID of a second process whose death cancels
// [Context]. The Makefile sets it to make's, which is not always the parent of what it runs.
const WatchVariable = "WORKSHOP_WATCH_PID"

// ErrInterrupted is the cause of the cancellation of [Context].
var ErrInterrupted = errors.New("interrupted")

// Context returns a context that is cancelled on SIGINT, SIGTERM or SIGHUP, and when the parent process, or the one
// in [WatchVariable], has died. A second signal has no further effect: the program is stopping already. A program that
// was started by nohup runs on after SIGHUP.
func Context() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // Notify would undo what nohup has done
		signal.Notify(signals, syscall.SIGHUP)
	}
	// Otherwise the first line that is written to a pipe without a reader, such as a tee that Ctrl-C has ended too, would end
	// the program before it has cleaned up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	parent := os.Getppid()
	watched, _ := strconv.Atoi(os.Getenv(WatchVariable)) // 0 if it is not set
	go func() {
		// No portable signal announces the death of a parent, so it is polled.
		tick := time.NewTicker(200 * time.Millisecond)
		for {
			select {
			case <-signals:
				cancel(ErrInterrupted)
			case <-tick.C:
				if os.Getppid() != parent || watched > 0 && isGone(watched) {
					cancel(ErrInterrupted)
				}
			}
		}
	}()
	return ctx
}

func isGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

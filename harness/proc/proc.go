// Package proc starts processes that do not outlive the one that started them.
//
// It imports nothing but the standard library and golang.org/x/sys, because the program that builds
// all the others is made of it.
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

// Grace is how long a process has between being asked to end and being killed.
const Grace = 2 * time.Second

// Group puts cmd, made with exec.CommandContext, in a process group of its own, so that Ctrl-C at
// the terminal reaches us alone and we decide what ends when. The end of its context ends the whole
// group: SIGTERM first, SIGKILL after [Grace].
func Group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		time.AfterFunc(Grace, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return ignoreGone(syscall.Kill(group, syscall.SIGTERM))
	}
	cmd.WaitDelay = Grace + time.Second
}

func ignoreGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// WatchVariable names the environment variable that holds the ID of one more process whose death is
// a reason to end: make's, which is not always our parent.
const WatchVariable = "WORKSHOP_WATCH_PID"

// ErrInterrupted is the cause of a context of [Context] that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// Context returns a context that ends on SIGINT, SIGTERM or SIGHUP, and when the parent process or
// the one named by [WatchVariable] is gone. The signals do nothing else from then on: ending is
// already under way, and is prompt.
func Context() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	parent := os.Getppid()
	watched, _ := strconv.Atoi(os.Getenv(WatchVariable)) // 0, which is never gone, when it is not set
	go func() {
		// A dead parent sends no signal, and is not ours to wait for, so this one thing is polled.
		tick := time.NewTicker(200 * time.Millisecond)
		for {
			select {
			case <-signals:
				cancel(ErrInterrupted)
			case <-tick.C:
				if os.Getppid() != parent || watched > 0 && gone(watched) {
					cancel(ErrInterrupted)
				}
			}
		}
	}()
	return ctx
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// Package guard ends what a command left running when the one that asked for it is gone.
//
// A program that is killed with SIGKILL cannot clean up. So it starts its commands through a second
// process, the guard, which holds the other end of a pipe and cleans up when that closes.
package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"

	"example.com/controllers/harness/proc"
)

// Bye is what the process that asked for a guard writes to the pipe before it closes it, to say that
// it is still there and will clean up its directories itself.
const Bye = "bye"

// Run runs a command in a session of its own and returns its exit status. When the command ends, or
// alive does (a pipe from the process that asked, closed by it or by its death), or the guard gets
// SIGTERM, it ends every process of the session, background jobs and their children included. If the
// one that asked has not said [Bye], it then removes the directory remove.
//
// The command gets the guard's standard output, standard error and file 3. Its standard input is empty.
func Run(alive io.Reader, remove, name string, args ...string) (status int, err error) {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "file 3")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	// Ctrl-C is for the one that asked; when it has had enough, it closes the pipe.
	signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGPIPE)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(alive)
		said <- string(text)
	}()

	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start %s: %w", name, err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	var last string
	select {
	case err = <-exited:
		sessionErr := endSession(cmd.Process.Pid)
		// The one that asked learns of the end by the end of the output; what it has to say comes after.
		os.Stdout.Close()
		os.Stderr.Close()
		last = <-said
		if sessionErr != nil {
			return 1, sessionErr
		}
	case <-terminated:
		return 1, endSession(cmd.Process.Pid)
	case last = <-said:
		if err := endSession(cmd.Process.Pid); err != nil {
			return 1, err
		}
	}
	if last != Bye {
		if err := os.RemoveAll(remove); err != nil {
			return 1, err
		}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// endSession ends all processes of a session: SIGTERM first, SIGKILL after a grace period.
func endSession(session int) error {
	return end(func() ([]int, error) { return sessionMembers(session) })
}

// end is endSession for the processes that members returns.
func end(members func() ([]int, error)) error {
	signal := syscall.SIGTERM
	kill := time.Now().Add(proc.Grace)
	for empty := 0; ; {
		members, err := members()
		if err != nil {
			return err
		}
		if len(members) == 0 {
			// A process that was in the list may have started another one, which is not, and have ended
			// before it was looked at. So an empty list may miss somebody; the next one does not.
			if empty++; empty == 2 {
				return nil
			}
			continue
		}
		empty = 0
		for _, pid := range members {
			_ = syscall.Kill(pid, signal) // it may have gone since
		}
		switch now := time.Now(); {
		case now.After(kill.Add(proc.Grace)):
			return fmt.Errorf("processes %v do not end, not even by SIGKILL", members)
		case now.After(kill):
			signal = syscall.SIGKILL
		}
		// They are not our children, all of them, so there is nothing to wait on.
		time.Sleep(20 * time.Millisecond)
	}
}

func sessionMembers(session int) ([]int, error) {
	all, err := process.Pids()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var members []int
	for _, pid := range all {
		if sid, err := unix.Getsid(int(pid)); err != nil || sid != session {
			continue
		}
		p := process.Process{Pid: pid}
		if status, err := p.Status(); err == nil && !slices.Contains(status, process.Zombie) {
			members = append(members, int(pid))
		}
	}
	return members, nil
}

// command is the first argument of a process that is to be a guard.
const command = "be-a-guard"

// Main makes this process the guard if it was started by [Command], and does not return then. Programs
// and test binaries that need guards call it before anything else.
func Main() {
	if len(os.Args) < 2 || os.Args[1] != command {
		return
	}
	remove, args := os.Args[2], os.Args[3:]
	status, err := Run(os.Stdin, remove, args[0], args[1:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		status = 1
	}
	os.Exit(status)
}

// Command returns a command that runs another one under a guard: this program again, as [Main]. The
// caller gives it a pipe as standard input. The guard removes the directory remove if we die.
func Command(remove, name string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find our own program: %w", err)
	}
	return exec.Command(self, append([]string{command, remove, name}, args...)...), nil
}

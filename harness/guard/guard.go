// Package guard runs a command under a second process, the guard, that cleans up after it.
//
//   - When the command exits, the guard ends all processes that it has left behind, such as background jobs.
//   - When the caller dies, even by SIGKILL, the guard ends the command as well and removes the caller's directory.
//
// [TempDir] has a guard without a command, which only removes a directory.
//
// The guard holds one end of a pipe, whose other end only the caller has open. The kernel closes it when the caller
// dies.
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

// Bye is what the caller writes to the pipe before closing it. It tells the guard that the caller is alive and removes
// its directory itself.
const Bye = "bye"

// Run runs a command in a session of its own and returns its exit status. alive is the guard's end of the pipe. When
// the command exits, alive is closed, or the guard gets SIGTERM, Run ends every process of the session, including
// background jobs and their children. If alive was closed without [Bye], it then removes the directory remove.
//
// The command inherits standard output, standard error and file descriptor 3. Its standard input is empty.
func Run(alive io.Reader, remove, name string, args ...string) (status int, err error) {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "file 3")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	// Ctrl-C is for the caller to handle, which closes the pipe when the command should stop.
	// Signals that are ignored would be ignored by the command, too.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGHUP, syscall.SIGPIPE)
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
		// The caller notices the exit by the end of the output, and only then writes Bye and closes the pipe.
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

// killedTimeout is how long a process that was sent SIGKILL may remain. On a busy machine, it first has to be scheduled.
const killedTimeout = time.Minute

// endSession ends all processes of a session: it sends SIGTERM and, after [proc.Grace], SIGKILL.
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
			// Listing the processes is not atomic: one of them may have started another, which is not in the list,
			// and have exited before its session was read. So an empty list may be wrong, but not two in a row.
			if empty++; empty == 2 {
				return nil
			}
			continue
		}
		empty = 0
		for _, pid := range members {
			_ = syscall.Kill(pid, signal) // it may have exited already
		}
		switch now := time.Now(); {
		case now.After(kill.Add(killedTimeout)):
			return fmt.Errorf("processes %v are still running after SIGKILL", members)
		case now.After(kill):
			signal = syscall.SIGKILL
		}
		// Not all of them are our children, so there is nothing to wait on.
		time.Sleep(20 * time.Millisecond)
	}
}

// sessionMembers returns the IDs of the processes of a session, without zombies.
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

// command is the first command-line argument of a guard process.
const command = "be-a-guard"

// Main runs the guard, and exits, if this process was started by [Command] or [TempDir]; otherwise it does nothing. Programs
// and test binaries that use guards call it before anything else.
func Main() {
	if len(os.Args) < 2 || os.Args[1] != command {
		return
	}
	remove, args := os.Args[2], os.Args[3:]
	var status int
	var err error
	if len(args) == 0 {
		err = awaitDeath(os.Stdin, remove)
	} else {
		status, err = Run(os.Stdin, remove, args[0], args[1:]...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		status = 1
	}
	os.Exit(status)
}

// Command returns a command that runs another one under a guard. It executes this program again, whose main function
// must call [Main]. The caller sets its standard input to a pipe that it keeps open, and the guard removes the directory
// remove if the caller dies.
func Command(remove, name string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find our own program: %w", err)
	}
	return exec.Command(self, append([]string{command, remove, name}, args...)...), nil
}

package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// TempDir makes a temporary directory, as [os.MkdirTemp] does. remove removes it; if this process dies first, even by
// SIGKILL, a guard does.
func TempDir(pattern string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp("", pattern); err != nil {
		return "", nil, err
	}
	stop, err := removeAtDeath(dir)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("start the guard of %s: %w", dir, err), os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), stop()) }, nil
}

// removeAtDeath starts a guard that removes a directory if this process dies. stop ends the guard.
func removeAtDeath(dir string) (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, command, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for this process to handle
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		_, _ = io.WriteString(alive, Bye) // the guard may have been killed
		alive.Close()
		return cmd.Wait()
	}, nil
}

// awaitDeath is the guard of [TempDir]. alive is its end of the pipe.
func awaitDeath(alive io.Reader, dir string) error {
	if text, _ := io.ReadAll(alive); string(text) == Bye {
		return nil
	}
	return os.RemoveAll(dir)
}

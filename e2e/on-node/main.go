// Program on-node runs a command of the machine from a privileged container in the machine's PID namespace. The
// tests add it to the image of lesson 5's agent, which has no other way to run systemctl.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "on-node:", err)
		os.Exit(1)
	}
}

// run replaces this process with the command. /proc/1/root is the root directory of the machine's first process.
func run(command []string) error {
	if len(command) == 0 {
		return errors.New("there is no command to run")
	}
	if err := syscall.Chroot("/proc/1/root"); err != nil {
		return fmt.Errorf("enter the machine's root directory: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, command, os.Environ())
}

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Command is a command of the machine. The shell runs one that needs it, with quotes, a pipe or a variable, say. The words of
// any other are separated by spaces, and run as they are, because the container may have no shell.
type Command struct {
	Line string
	// Root is the directory that the command sees as the root directory: where that of the host is mounted, so that the host's
	// programs run, always in the host's shell. "" for the container's own.
	Root string
}

// Reboot runs the command. The error includes the end of its output.
func (c Command) Reboot(ctx context.Context) error {
	output, err := c.run(ctx)
	if err != nil {
		return fmt.Errorf("run %q: %w%s", c.Line, err, output)
	}
	return nil
}

// commandTimeout is how long a command may run before it is killed.
const commandTimeout = time.Minute

// hostPath is where the programs of a host are looked for.
const hostPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command returns the command to execute, and whether the shell is.
func (c Command) command(ctx context.Context) (cmd *exec.Cmd, shell bool) {
	words := strings.Fields(c.Line)
	if c.Root == "" && !needsShell(c.Line) {
		return exec.CommandContext(ctx, words[0], words[1:]...), false
	}
	cmd = exec.CommandContext(ctx, "/bin/sh", "-c", c.Line)
	if c.Root != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.Root}
		cmd.Dir, cmd.Env = "/", append(cmd.Environ(), hostPath)
	}
	return cmd, true
}

// needsShell reports whether a command line means something else to a shell than the words that spaces separate.
func needsShell(line string) bool {
	words := strings.Fields(line)
	return len(words) > 0 && strings.Contains(words[0], "=") || strings.ContainsAny(line, "\"'`$\\|&;<>()*?[]#~!{}\n")
}

// run runs the command. It returns the end of its output, which begins with a newline unless it is empty.
func (c Command) run(ctx context.Context) (output string, err error) {
	if strings.TrimSpace(c.Line) == "" {
		return "", errors.New("the command is empty")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, commandTimeout, fmt.Errorf("killed after %s", commandTimeout))
	defer cancel()
	cmd, shell := c.command(ctx)
	cmd.WaitDelay = time.Second // a child that runs on may keep the output open
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // the command itself succeeded; only a child kept the output open
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case shell && errors.Is(err, fs.ErrNotExist) && c.Root == "":
		err = fmt.Errorf("%w; there is no shell here: mount the host's root directory, and name it with --host-root", err)
	case shell && errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w; is the host's root directory mounted at --host-root %s?", err, c.Root)
	case shell && errors.Is(err, fs.ErrPermission) && c.Root != "":
		err = fmt.Errorf("%w; to run a command in --host-root needs the capability SYS_CHROOT", err)
	}
	const most = 500 // bytes
	text := strings.TrimSpace(out.String())
	if text == "" {
		return "", err
	}
	// Events and annotations must be valid UTF-8.
	return "\n" + strings.ToValidUTF8(text[max(0, len(text)-most):], ""), err
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/play"
)

// What a prompt says about keys.
const (
	pauseKeys = " · a: run the rest · q: quit"
	shellKey  = " · s: shell"
)

// keyboard reads what the reader types, a line at a time.
type keyboard struct {
	input *bufio.Reader
	// shell, if set, opens a shell, and returns when it has ended.
	shell func(context.Context) error
}

func newKeyboard() *keyboard { return &keyboard{input: bufio.NewReader(os.Stdin)} }

// isTerminal reports whether somebody sees what is written, and can answer.
func isTerminal() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// errInputEnded is what pause returns when nobody can press Enter any more.
var errInputEnded = errors.New("the lesson waits for Enter, but standard input has ended; STEP=0 (--step=false) plays it without waiting")

// pause waits for the reader, as [play.Player.Pause].
func (k *keyboard) pause(ctx context.Context) error {
	// Enter that was pressed while a command was running is no answer to this prompt.
	k.forgetTyped()
	answer, err := k.line(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return errInputEnded
	case err != nil:
		return err
	}
	switch answer = strings.ToLower(answer); {
	case answer == "":
		return nil
	case answer == "q":
		return play.ErrQuit
	case answer == "a":
		return play.ErrHurry
	case answer == "s" && k.shell != nil:
		if err := k.shell(ctx); err != nil {
			return err
		}
		return play.ErrAgain
	}
	fmt.Printf("%q is none of these keys.\n", answer)
	return play.ErrAgain
}

// forgetTyped drops what was typed on a terminal and has not been read.
func (k *keyboard) forgetTyped() {
	if term.IsTerminal(int(os.Stdin.Fd())) {
		flushInput(int(os.Stdin.Fd()))
	}
}

// line reads a line. If ctx ends first, it returns its cause, and nothing else may read any more.
func (k *keyboard) line(ctx context.Context) (string, error) {
	type read struct {
		text string
		err  error
	}
	done := make(chan read, 1)
	go func() {
		text, err := k.input.ReadString('\n')
		if errors.Is(err, io.EOF) && text != "" { // a last line without a line break
			err = nil
		}
		done <- read{strings.TrimSpace(text), err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// openShell opens an interactive shell in dir, with an environment as the commands of a page have it, and returns when it has ended.
// scratch is a directory for its files. name is what its prompt says.
func openShell(ctx context.Context, dir, scratch, name string, env []string) error {
	bash, err := exec.LookPath("bash")
	if err != nil {
		return errors.New("there is no bash on the PATH; install it, or use a second terminal")
	}
	isolated, err := environ.Isolated(filepath.Join(scratch, "home"))
	if err != nil {
		return err
	}
	builds, err := gobuild.Env(ctx)
	if err != nil {
		return err
	}
	fmt.Println("\nA shell on this cluster, with kubectl; exit comes back.")
	// An interactive shell gives each command a process group of its own, so Ctrl-C ends that command, and not the lesson.
	cmd := exec.CommandContext(ctx, bash, "--noprofile", "--norc", "-i")
	cmd.Dir = dir
	cmd.Env = append(append(append(isolated, builds...), env...), "PS1="+name+" $ ")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return nil // its last command failed
	}
	return err
}

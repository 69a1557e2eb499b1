package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/guard"
)

// program is the lesson's program while it runs. It runs under a guard, so that it does not outlive us, even if we
// are killed.
type program struct {
	guard *exec.Cmd
	alive io.WriteCloser // the guard's standard input
	log   string         // path
	ended chan struct{}  // closed when it has
	err   error          // how, once it has
}

// start starts a program that writes its log to a file. fail is told if it ends before stop is called.
func start(log, kubeconfig string, env []string, fail func(error), path string, args ...string) (*program, error) {
	cmd, err := guard.Command(kubeconfig, path, append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull) // the file 3 that a guard hands on
	if err != nil {
		return nil, err
	}
	defer null.Close()
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.ExtraFiles = []*os.File{null}
	isolated, err := environ.Isolated(kubeconfig + ".home")
	if err != nil {
		return nil, err
	}
	cmd.Env = append(append(isolated, "KUBECONFIG="+kubeconfig), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us
	p := &program{guard: cmd, log: log, ended: make(chan struct{})}
	if p.alive, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
		fail(fmt.Errorf("the program ended by itself (%v); the end of its log:\n%s", p.err, p.tail()))
	}()
	return p, nil
}

// stop ends the program with SIGTERM, waits until it has ended, and ends it with SIGKILL if it takes long. An end
// after this is no failure any more.
func (p *program) stop() error {
	_, err := io.WriteString(p.alive, guard.Bye)
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		err = nil // the guard is gone
	}
	err = errors.Join(err, p.alive.Close())
	<-p.ended
	if p.err != nil {
		err = errors.Join(err, fmt.Errorf("stop the program: %w; the end of its log:\n%s", p.err, p.tail()))
	}
	return err
}

// tail is the end of the log.
func (p *program) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

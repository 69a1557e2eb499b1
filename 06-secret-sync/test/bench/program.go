package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/shirou/gopsutil/v4/process"

	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/guard"
)

// program is a running program. It runs under a guard, which ends it even if the benchmark is killed.
type program struct {
	guard *exec.Cmd
	alive io.WriteCloser // the guard's standard input
	log   string         // path
	ended chan struct{}  // closed when the process has ended
	err   error          // of the process; valid once ended is closed

	stopping atomic.Bool
}

// start starts a program with its output in a file. It calls fail if the program ends by itself.
func start(log, kubeconfig string, fail func(error), path string, args ...string) (*program, error) {
	cmd, err := guard.Command(kubeconfig, path, args...)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull) // as file 3, which a guard expects
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
	cmd.Env = append(isolated, "KUBECONFIG="+kubeconfig)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the benchmark
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
		if !p.stopping.Load() {
			fail(fmt.Errorf("%s exited (%v); the end of its log:\n%s", path, p.err, p.tail()))
		}
	}()
	return p, nil
}

// stop sends SIGTERM, waits until the program has ended, and sends SIGKILL if that takes long.
func (p *program) stop() error {
	p.stopping.Store(true)
	_, err := io.WriteString(p.alive, guard.Bye)
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		err = nil // the guard has ended already
	}
	err = errors.Join(err, p.alive.Close())
	<-p.ended
	if p.err != nil {
		err = errors.Join(err, fmt.Errorf("stop the program: %w; the end of its log:\n%s", p.err, p.tail()))
	}
	return err
}

// notSynced returns "" once the program has logged that its caches have synced.
func (p *program) notSynced() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(string(text), "Caches synced") {
		return "they have not"
	}
	return ""
}

// tail returns the end of the log.
func (p *program) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// memory returns the peak of the process's resident memory in bytes; on systems other than Linux, the current one.
func (p *program) memory() (uint64, error) {
	guard, err := process.NewProcess(int32(p.guard.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("find the program's guard: %w", err)
	}
	children, err := guard.Children()
	if err != nil || len(children) != 1 {
		return 0, fmt.Errorf("find the program's process: its guard has %d children: %w", len(children), err)
	}
	memory, err := children[0].MemoryInfo()
	if err != nil {
		return 0, fmt.Errorf("read the program's memory: %w", err)
	}
	return max(memory.RSS, memory.HWM), nil
}

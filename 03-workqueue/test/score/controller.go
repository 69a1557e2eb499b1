package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"

	"k8s.io/client-go/rest"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/machine"
)

// controller is a running program of a lesson. It runs under a guard, so that it does not outlive us, even if we are
// killed.
type controller struct {
	guard    *exec.Cmd
	alive    io.WriteCloser // standard input of the guard, which ends the program when it is closed
	ended    chan struct{}  // closed when the program has ended and its log is complete
	log      tail           // must not be read before ended is closed
	stopping atomic.Bool
}

// start starts a program as its Deployment would, with its namespace and the name of its Node. fail is called if the
// program ends before stop is called.
func start(program string, args []string, config *rest.Config, namespace, kubeconfig string, fail func(error)) (*controller, error) {
	if err := cluster.WriteKubeconfig(kubeconfig, config, namespace); err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s: %w", program, err)
	}
	cmd, err := guard.Command(kubeconfig, program, append([]string{"--kubeconfig=" + kubeconfig, "--namespace=" + namespace}, args...)...)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull) // file descriptor 3, which the guard passes on
	if err != nil {
		return nil, err
	}
	defer null.Close()
	cmd.ExtraFiles = []*os.File{null}
	env, err := environ.Isolated(kubeconfig + ".home")
	if err != nil {
		return nil, err
	}
	cmd.Env = append(env, "KUBECONFIG="+kubeconfig, "NODE_NAME="+machine.Name(0))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C signals only us
	c := &controller{guard: cmd, ended: make(chan struct{})}
	if c.alive, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Start()
	out.Close()
	if err != nil {
		output.Close()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		_, _ = io.Copy(&c.log, output) // until the last process that has it open has ended
		output.Close()
		close(c.ended)
		if !c.stopping.Load() {
			fail(fmt.Errorf("the controller exited by itself; its last lines:\n%s", &c.log))
		}
	}()
	return c, nil
}

// stop sends SIGTERM, waits until the program has ended, and sends SIGKILL if that takes too long.
func (c *controller) stop() error {
	if c.stopping.Swap(true) {
		return nil
	}
	_, _ = io.WriteString(c.alive, guard.Bye) // the guard may have been killed
	c.alive.Close()
	<-c.ended
	if err := c.guard.Wait(); err != nil {
		return fmt.Errorf("stop the controller: %w; its last lines:\n%s", err, &c.log)
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

// Write implements io.Writer.
func (t *tail) Write(text []byte) (int, error) {
	const enough = 4 << 10
	t.text = append(t.text, text...)
	if len(t.text) > 2*enough {
		t.text = bytes.Clone(t.text[len(t.text)-enough:])
	}
	return len(text), nil
}

// String returns the last lines.
func (t *tail) String() string {
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	const last = 10
	return "  " + strings.Join(lines[max(0, len(lines)-last):], "\n  ")
}

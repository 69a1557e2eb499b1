package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Options say what a new cluster is like.
type Options struct {
	// Nodes is the number of simulated Nodes; 0 means none.
	Nodes int
	// Progress is told how far the build of the control plane is, when it has to be built; nil is
	// for nobody.
	Progress io.Writer
	// APIServerFlags are further flags of kube-apiserver.
	APIServerFlags []string
}

// tempPrefix starts the names of the temporary directories of clusters.
const tempPrefix = "workshop-cluster-"

// process is a control plane that runs.
type process struct {
	cmd    *exec.Cmd
	dir    string // everything it writes is in here
	stdin  io.Closer
	exited chan struct{} // closed when it has
	err    error         // how, once it has
}

// ready is the line that the control plane's program prints. Its fields are documented there.
type ready struct {
	Kubeconfig, Server, Version string
	Nodes                       int
}

// Start starts a control plane of our own and returns when its Nodes are Ready. It is thrown away
// with all its state by [Cluster.Stop], and also when this process dies, however it dies.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	sweep()
	dir, err := os.MkdirTemp("", tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a directory for the cluster: %w", err)
	}
	c, err := launch(ctx, o, dir, false)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.Name = "a control plane of our own"
	return c, nil
}

// Dir returns the directory that everything of a cluster of ours is in; it goes when the cluster
// does. It is "" for somebody else's.
func (c *Cluster) Dir() string {
	if c.process == nil {
		return ""
	}
	return c.process.dir
}

// Done returns a channel that is closed when the control plane's process has ended. It is nil, which
// is never ready, for a cluster that this process did not start.
func (c *Cluster) Done() <-chan struct{} {
	if c.process == nil {
		return nil
	}
	return c.process.exited
}

// Err says why the control plane's process ended, with the last lines of its log.
func (c *Cluster) Err() error {
	return fmt.Errorf("the control plane ended: %w\n%s", c.process.err, logTail(logFile(c.process.dir)))
}

// Stop ends a cluster that Start started, and removes its directory. For any other it does nothing.
func (c *Cluster) Stop() error {
	p := c.process
	if p == nil {
		return nil
	}
	p.stdin.Close()
	select {
	case <-p.exited:
	case <-time.After(3 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	return os.RemoveAll(p.dir)
}

// launch runs the control plane's program on dir and waits until it is ready. One that stays is on
// its own from then on.
func launch(ctx context.Context, o Options, dir string, stays bool) (*Cluster, error) {
	path, err := program(ctx, orDiscard(o.Progress))
	if err != nil {
		return nil, err
	}
	logPath := logFile(dir)
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"serve", "--dir", dir, "--nodes", strconv.Itoa(o.Nodes)}
	if !stays {
		args = append(args, "--ephemeral", "--exit-with-stdin")
	}
	for _, flag := range o.APIServerFlags {
		args = append(args, "--apiserver-flag", flag)
	}
	cmd := exec.Command(path, args...)
	cmd.Stderr = log
	// Not in our process group: Ctrl-C is for us, and we end it when we are done with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, dir: dir, exited: make(chan struct{})}
	if !stays {
		if p.stdin, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(stdout).ReadString('\n')
		line <- text
		p.err = cmd.Wait()
		close(p.exited)
	}()

	var said ready
	select {
	case text := <-line:
		if json.Unmarshal([]byte(text), &said) == nil {
			break
		}
		<-p.exited
		return nil, fmt.Errorf("the control plane did not start: %w\n%s", p.err, logTail(logPath))
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(3 * time.Second):
			_ = cmd.Process.Kill()
		}
		return nil, context.Cause(ctx)
	}
	c := &Cluster{
		Kubeconfig: said.Kubeconfig,
		Version:    said.Version,
		Nodes:      said.Nodes,
		Kubectl:    filepath.Dir(path),
	}
	if !stays {
		c.process = p
	}
	return c, nil
}

func logFile(dir string) string { return filepath.Join(dir, "log") }

// logTail returns the last lines of a log, for a person to read.
func logTail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	const last = 15
	return "the last lines of its log:\n  " + strings.Join(lines[max(0, len(lines)-last):], "\n  ")
}

// sweep removes the directories of clusters whose process was killed together with the one that
// would have cleaned up. Those in use are locked; those just made, not yet.
func sweep() {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range old {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock := flock.New(filepath.Join(dir, "lock"))
		if locked, err := lock.TryLock(); err == nil && locked {
			_ = os.RemoveAll(dir) // another process may be sweeping too
			lock.Close()
		}
	}
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

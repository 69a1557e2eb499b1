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
	"golang.org/x/sys/unix"
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
	log    *os.File
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
	path, err := program(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	sweep()
	dir, err := os.MkdirTemp("", tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a directory for the cluster: %w", err)
	}
	c, err := launch(ctx, o, path, dir, false)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.Name = "a control plane of our own"
	return c, nil
}

// Dir returns the directory of a cluster that Start started. It goes when the cluster does, so it is the
// place for what must not be left behind. For any other cluster it is "".
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
	return fmt.Errorf("the control plane ended: %w\n%s", c.process.err, logTail(c.process.log))
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
	return errors.Join(p.log.Close(), os.RemoveAll(p.dir))
}

// Crash kills the control plane of a cluster that Start started, as kill -9 does, and starts it again on
// what it has left, at the same address if that is still free. Who waits for [Cluster.Done] is told of the
// end; the cluster must not be used by others meanwhile.
func (c *Cluster) Crash(ctx context.Context, o Options) error {
	p := c.process
	if p == nil {
		return fmt.Errorf("%s is not ours to kill", c.Name)
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
	p.stdin.Close()
	again, err := launch(ctx, o, p.cmd.Path, p.dir, false)
	if err != nil {
		return fmt.Errorf("start the control plane again: %w", err)
	}
	c.process = again.process
	return p.log.Close()
}

// launch runs the control plane's program, at path, on dir and waits until it is ready. One that stays
// is on its own from then on.
func launch(ctx context.Context, o Options, path, dir string, stays bool) (*Cluster, error) {
	if o.Nodes < 0 {
		return nil, fmt.Errorf("the number of nodes is %d; it must be 0 or more", o.Nodes)
	}
	if err := checkSpace(dir); err != nil {
		return nil, err
	}
	// We keep it open: the program removes it with the directory, and then we show what it says.
	log, err := os.OpenFile(logFile(dir), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	keep := false
	defer func() {
		if !keep {
			log.Close()
		}
	}()
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
	p := &process{cmd: cmd, dir: dir, log: log, exited: make(chan struct{})}
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
		return nil, fmt.Errorf("the control plane did not start: %w\n%s", p.err, logTail(log))
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(3 * time.Second):
			_ = cmd.Process.Kill()
			<-p.exited
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
		c.process, keep = p, true
	}
	return c, nil
}

// needed is the free space, in bytes, that a control plane is not started without. Most of it is etcd's,
// which claims some of it at once and fails in odd ways without it.
const needed = 200 << 20

func checkSpace(dir string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < needed {
		return fmt.Errorf("the disk of %s has %d MB left; a control plane needs %d MB. Free some first",
			dir, free>>20, needed>>20)
	}
	return nil
}

func logFile(dir string) string { return filepath.Join(dir, "log") }

// logTail returns the last lines of a log, for a person to read.
func logTail(log *os.File) string {
	info, err := log.Stat()
	if err != nil {
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	}
	const enough = 16 << 10 // bytes
	text := make([]byte, min(enough, info.Size()))
	if _, err := log.ReadAt(text, info.Size()-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
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

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

// Options configure a new cluster.
type Options struct {
	// Nodes is the number of simulated Nodes (package machine) that a new cluster starts with.
	Nodes int
	// Progress is where the progress of building the control plane is written to, if it has to be built. nil
	// discards it.
	Progress io.Writer
	// APIServerFlags are additional kube-apiserver flags, which override the defaults.
	APIServerFlags []string
	// GCPercent is the control plane's GOGC, see package runtime, unless this process has been told one: the higher it is,
	// the more memory the control plane takes, and the less CPU time. 0 for the control plane's own way, which spares memory at rest.
	GCPercent int
}

// tempPrefix begins the names of the data directories that Start creates in the directory for temporary files.
const tempPrefix = "workshop-cluster-"

// process is a control plane that Start has started.
type process struct {
	cmd    *exec.Cmd
	dir    string        // its data directory, which is all that it writes to
	log    *os.File      // its standard error, a file in dir
	stdin  io.Closer     // the control plane stops when this is closed, by us or by our death
	exited chan struct{} // closed when the process has exited
	err    error         // how it exited; set before exited is closed
}

// ready is the line that the control plane's program prints when the cluster is ready. harness/controlplane
// documents its fields.
type ready struct {
	Kubeconfig, Server, Version string
	Nodes                       int
}

// Start starts a control plane and returns when its Nodes are Ready. [Cluster.Stop] stops it and removes its state; so
// does the end of this process, even by SIGKILL.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	path, err := programPath(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	removeStale()
	dir, err := os.MkdirTemp("", tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("create a data directory for the cluster: %w", err)
	}
	c, err := launch(ctx, o, path, dir, false)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.Name = "a control plane of our own"
	return c, nil
}

// Dir returns the data directory of a cluster that Start has started, or "" for any other. It is removed together with
// the cluster, so it is the place for files that must not be left behind.
func (c *Cluster) Dir() string {
	if c.process == nil {
		return ""
	}
	return c.process.dir
}

// Done returns a channel that is closed when the control plane's process has exited. For a cluster that Start has not
// started the channel is nil, so receiving from it blocks forever.
func (c *Cluster) Done() <-chan struct{} {
	if c.process == nil {
		return nil
	}
	return c.process.exited
}

// Err returns an error that says how the control plane's process exited, with the last lines of its log. It must only
// be called when Done is closed.
func (c *Cluster) Err() error {
	return fmt.Errorf("the control plane ended: %w\n%s", c.process.err, logTail(c.process.log))
}

// Stop stops a cluster that Start has started, and removes its data directory. For any other cluster it does nothing.
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

// Crash kills the control plane of a cluster that Start has started with SIGKILL, and starts it again with the state
// that it has left. It closes the channel that [Cluster.Done] has returned before; later calls return a new one. If another
// program has taken its port meanwhile, it runs at another address, and Crash returns an error: its clients do not know that
// address. No other method may be called at the same time.
func (c *Cluster) Crash(ctx context.Context, o Options) error {
	p := c.process
	if p == nil {
		return fmt.Errorf("crash %s: this process has not started it", c.Name)
	}
	before, err := c.Config()
	if err != nil {
		return err
	}
	// Until the new control plane has locked the directory, it must not look stale to another process.
	now := time.Now()
	if err := os.Chtimes(p.dir, now, now); err != nil {
		return fmt.Errorf("crash %s: %w", c.Name, err)
	}
	_ = p.cmd.Process.Kill() // it may have exited already
	<-p.exited
	p.stdin.Close()
	restarted, err := launch(ctx, o, p.cmd.Path, p.dir, false)
	if err != nil {
		return fmt.Errorf("start the control plane again: %w", err)
	}
	c.process = restarted.process
	after, err := c.Config()
	if err == nil && after.Host != before.Host {
		err = fmt.Errorf("start the control plane again: another program has taken its address %s while it was down", before.Host)
	}
	return errors.Join(err, p.log.Close())
}

// launch runs the control plane's program, which is at path, with the data directory dir, and waits until the cluster
// is ready. A detached control plane outlives this process. Otherwise it stops when this process does, and the result has
// a process.
func launch(ctx context.Context, o Options, path, dir string, detached bool) (*Cluster, error) {
	if o.Nodes < 0 {
		return nil, fmt.Errorf("the number of nodes is %d; it must be 0 or more", o.Nodes)
	}
	if err := checkSpace(dir); err != nil {
		return nil, err
	}
	// The file stays open because the program removes it together with the directory, and a failure to start is
	// explained with its contents.
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
	if !detached {
		args = append(args, "--ephemeral", "--exit-with-stdin")
	}
	for _, flag := range o.APIServerFlags {
		args = append(args, "--apiserver-flag", flag)
	}
	cmd := exec.Command(path, args...)
	// Tests set this variable to check their own caches. To check those of Kubernetes' controllers takes a seventh of a
	// control plane's processor time.
	cmd.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=false")
	if o.GCPercent != 0 && os.Getenv("GOGC") == "" {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GOGC=%d", o.GCPercent))
	}
	cmd.Stderr = log
	// In a session of its own, so that Ctrl-C does not reach it: this process decides when it stops.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, dir: dir, log: log, exited: make(chan struct{})}
	if !detached {
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

	var status ready
	select {
	case text := <-line:
		if json.Unmarshal([]byte(text), &status) == nil {
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
		Kubeconfig: status.Kubeconfig,
		Version:    status.Version,
		Nodes:      status.Nodes,
		Kubectl:    filepath.Dir(path),
	}
	if !detached {
		c.process, keep = p, true
	}
	return c, nil
}

// minFreeSpace is the disk space, in bytes, that must be free to start a control plane. etcd preallocates most of it,
// and its errors do not say so when it cannot.
const minFreeSpace = 200 << 20

// checkSpace returns an error if the disk of dir has less than minFreeSpace left.
func checkSpace(dir string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("determine the free space of the disk of %s: %w", dir, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < minFreeSpace {
		return fmt.Errorf("the disk of %s has %d MiB left, and a control plane needs %d MiB; free some space first",
			dir, free>>20, minFreeSpace>>20)
	}
	return nil
}

func logFile(dir string) string { return filepath.Join(dir, "log") }

// logTail returns the last lines of a log, with a heading, for an error message.
func logTail(log *os.File) string {
	info, err := log.Stat()
	if err != nil {
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	}
	const maxBytes, maxLines = 16 << 10, 15
	text := make([]byte, min(maxBytes, info.Size()))
	if _, err := log.ReadAt(text, info.Size()-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "the last lines of its log:\n  " + strings.Join(lines[max(0, len(lines)-maxLines):], "\n  ")
}

// removeStale removes the data directories of clusters whose control plane was killed together with the process that
// would have cleaned up. It skips a directory that is locked, which is in use, and one that was modified less than a
// minute ago, whose control plane may not have locked it yet.
func removeStale() {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock := flock.New(filepath.Join(dir, "lock"))
		if locked, err := lock.TryLock(); err == nil && locked {
			_ = os.RemoveAll(dir) // another process may be removing it, too
			lock.Close()
		}
	}
}

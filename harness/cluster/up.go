package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	ps "github.com/shirou/gopsutil/v4/process"
)

// ErrNotUp is the error of [Find] and [Down] when no cluster is running.
var ErrNotUp = errors.New("no cluster is up")

// ErrAlreadyUp is the error of [Up] when a cluster is already running.
var ErrAlreadyUp = errors.New("the cluster is already up")

// Up starts a control plane that outlives this process. dir is its data directory. If dir contains an earlier
// cluster, that cluster continues as it was, including its Nodes; Options.Nodes then has no effect.
func Up(ctx context.Context, o Options, dir string) (*Cluster, error) {
	path, err := programPath(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(dir)
	isNew := errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the cluster's data directory: %w", err)
	}
	// The program locks dir itself, so this check only makes for a better error message. Two concurrent calls may
	// both pass it.
	if IsUp(dir) {
		return nil, ErrAlreadyUp
	}
	c, err := launch(ctx, o, path, dir, true)
	if err != nil {
		if isNew {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return nil, err
	}
	c.Name = "the cluster of make up"
	return c, nil
}

// Find returns the running cluster whose data directory is dir, or ErrNotUp.
func Find(ctx context.Context, dir string, progress io.Writer) (*Cluster, error) {
	if !IsUp(dir) {
		return nil, ErrNotUp
	}
	path, err := programPath(ctx, progress)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Kubeconfig: adminKubeconfig(dir), Name: "the cluster of make up", Kubectl: filepath.Dir(path)}
	if err := c.probe(ctx); err != nil {
		return nil, fmt.Errorf("the control plane in %s is running but does not answer: %w; its log is %s", dir, err, logFile(dir))
	}
	return c, nil
}

// patience is how long [Down] waits for a control plane to exit before it kills it, or to find its process.
const patience = 3 * time.Second

// Down stops the control plane on dir and keeps its state. It waits until it has exited; after 3 s it kills it. One that
// is not a process of this machine, or of this container, cannot be stopped from here, which is an error.
func Down(ctx context.Context, dir string) error {
	signal := syscall.SIGTERM
	if !IsUp(dir) {
		return ErrNotUp
	}
	kill := time.Now().Add(patience)
	giveUp := kill
	for IsUp(dir) {
		now := time.Now()
		if now.After(kill) {
			signal = syscall.SIGKILL
		}
		pid, err := pidOf(dir)
		if err != nil {
			return err
		}
		switch {
		case serves(pid, dir):
			giveUp = now.Add(patience)
			if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stop the control plane (process %d): %w", pid, err)
			}
		// Not at once: one that is exiting has no command line any more, but still holds the lock.
		case now.After(giveUp):
			return fmt.Errorf("the control plane of %s runs in another container or on another machine; stop it there", dir)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// serves reports whether a process is the control plane on dir, by its command line. The process ID alone does not tell: if
// the control plane runs in another container, it is an ID there, and may be that of any process here.
func serves(pid int, dir string) bool {
	args, err := (&ps.Process{Pid: int32(pid)}).CmdlineSlice()
	at := slices.Index(args, "--dir")
	if err != nil || !slices.Contains(args, "serve") || at < 0 || at+1 == len(args) {
		return false
	}
	its, err := os.Stat(args[at+1])
	if err != nil {
		return false
	}
	ours, err := os.Stat(dir)
	return err == nil && os.SameFile(its, ours) // the path may be another, through a symbolic link
}

// Reset stops the control plane on dir, if it is running, and removes dir.
func Reset(ctx context.Context, dir string) error {
	if err := Down(ctx, dir); err != nil && !errors.Is(err, ErrNotUp) {
		return err
	}
	return os.RemoveAll(dir)
}

// IsUp reports whether a control plane, of [Up] or [Start], is running on dir. It holds a lock in dir for as long as it lives.
func IsUp(dir string) bool {
	path := filepath.Join(dir, "lock")
	if _, err := os.Stat(path); err != nil {
		return false
	}
	lock := flock.New(path)
	defer lock.Close()
	locked, err := lock.TryRLock() // shared, so that concurrent calls do not take each other for a control plane
	return err == nil && !locked
}

func adminKubeconfig(dir string) string { return filepath.Join(dir, "admin.kubeconfig") }

func pidOf(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return 0, fmt.Errorf("read the control plane's process ID: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the control plane's process ID: %w", err)
	}
	return pid, nil
}

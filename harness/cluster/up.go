package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// ErrNotUp is returned when a cluster that should be running is not.
var ErrNotUp = errors.New("no cluster is up")

// ErrAlreadyUp is returned by Up when the cluster is running.
var ErrAlreadyUp = errors.New("the cluster is already up")

// Up starts a control plane on dir that outlives this process. What dir holds of an earlier one goes
// on as it was, its Nodes included.
func Up(ctx context.Context, o Options, dir string) (*Cluster, error) {
	path, err := program(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(dir)
	isNew := errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cluster's directory: %w", err)
	}
	// Two at once would both find it down; the program's own lock lets in one of them, but this
	// gives the other a better sentence.
	if running(dir) {
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

// Find returns the cluster that runs on dir.
func Find(ctx context.Context, dir string, progress io.Writer) (*Cluster, error) {
	if !running(dir) {
		return nil, ErrNotUp
	}
	path, err := program(ctx, progress)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Kubeconfig: adminKubeconfig(dir), Name: "the cluster of make up", Kubectl: filepath.Dir(path)}
	if err := c.look(ctx); err != nil {
		return nil, fmt.Errorf("the control plane in %s runs but does not answer: %w; its log is %s", dir, err, logFile(dir))
	}
	return c, nil
}

// Down ends the control plane on dir and keeps its state.
func Down(ctx context.Context, dir string) error {
	return end(ctx, dir, syscall.SIGTERM)
}

// Kill ends the control plane on dir as a crash does, without a moment to say goodbye. Its state is kept:
// [Up] goes on with it, at the same address if that is still free.
func Kill(ctx context.Context, dir string) error {
	return end(ctx, dir, syscall.SIGKILL)
}

// end sends a signal to the control plane on dir until it has ended; one that takes too long is killed.
func end(ctx context.Context, dir string, signal syscall.Signal) error {
	if !running(dir) {
		return ErrNotUp
	}
	pid, err := pidOf(dir)
	if err != nil {
		return err
	}
	kill := time.Now().Add(3 * time.Second)
	for running(dir) {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end the control plane (process %d): %w", pid, err)
		}
		if time.Now().After(kill) {
			signal = syscall.SIGKILL
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// Reset ends the control plane on dir, if one runs, and throws its state away.
func Reset(ctx context.Context, dir string) error {
	if err := Down(ctx, dir); err != nil && !errors.Is(err, ErrNotUp) {
		return err
	}
	return os.RemoveAll(dir)
}

// running says whether a control plane runs on dir: it holds the lock there for as long as it lives.
func running(dir string) bool {
	path := filepath.Join(dir, "lock")
	if _, err := os.Stat(path); err != nil {
		return false
	}
	lock := flock.New(path)
	defer lock.Close()
	locked, err := lock.TryRLock() // shared, so that two who look at once do not take each other for it
	return err == nil && !locked
}

func adminKubeconfig(dir string) string { return filepath.Join(dir, "admin.kubeconfig") }

func pidOf(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return 0, fmt.Errorf("find the control plane's process: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

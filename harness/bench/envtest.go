package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// bootEnvtest starts envtest with its default flags, measures it, and kills it.
func (p programs) bootEnvtest(ctx context.Context, dir string, idle time.Duration) (b boot, err error) {
	err = p.runEnvtest(ctx, dir, func(ctx context.Context, e running) error {
		b.ready = e.ready
		return b.measure(ctx, idle, e.processes...)
	})
	return b, err
}

// running is an envtest that runs.
type running struct {
	ready       time.Duration // from the start until /readyz returned ok
	processes   []*process.Process
	environment *envtest.Environment
}

// runEnvtest starts envtest with its default flags, calls do, and kills it.
func (p programs) runEnvtest(ctx context.Context, dir string, do func(ctx context.Context, e running) error) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	apiServerLog, err := os.Create(filepath.Join(dir, "kube-apiserver.log"))
	if err != nil {
		return err
	}
	defer apiServerLog.Close()
	etcdLog, err := os.Create(filepath.Join(dir, "etcd.log"))
	if err != nil {
		return err
	}
	defer etcdLog.Close()
	host, port, err := freePort()
	if err != nil {
		return err
	}
	environment := &envtest.Environment{
		ControlPlane: envtest.ControlPlane{
			// In directories of ours, because envtest does not remove all of its own when a start fails.
			APIServer: &envtest.APIServer{
				Path: p.apiServer, CertDir: filepath.Join(dir, "kube-apiserver"), Out: apiServerLog, Err: apiServerLog,
				SecureServing: envtest.SecureServing{ListenAddr: envtest.ListenAddr{Address: host, Port: port}},
			},
			Etcd: &envtest.Etcd{Path: p.etcd, DataDir: filepath.Join(dir, "etcd"), Out: etcdLog, Err: etcdLog},
		},
		UseExistingCluster: new(false), // even if the user's environment sets USE_EXISTING_CLUSTER
	}
	for _, dir := range []string{environment.ControlPlane.APIServer.CertDir, environment.ControlPlane.Etcd.DataDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}

	start := time.Now()
	started := make(chan struct{})
	go func() {
		defer close(started)
		if _, err := environment.Start(); err != nil {
			cancel(fmt.Errorf("start envtest: %w", err))
		}
	}()
	defer func() {
		err = errors.Join(err, killChildren(started), environment.WebhookInstallOptions.Cleanup())
		err = withLogs(err, etcdLog, apiServerLog)
	}()
	if err := readyz(ctx, net.JoinHostPort(host, port)); err != nil {
		return err
	}
	ready := time.Since(start)
	select {
	case <-started:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	children, err := children()
	if err != nil {
		return err
	}
	if len(children) != 2 {
		return fmt.Errorf("envtest has %d processes; expected two, an API server and an etcd", len(children))
	}
	return do(ctx, running{ready: ready, processes: children, environment: environment})
}

// killChildren kills the processes that envtest starts, until its Start has returned (started is closed) and none is
// left. envtest's own Stop would wait for a graceful shutdown, and its Start cannot be cancelled.
func killChildren(started <-chan struct{}) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		done := false
		select {
		case <-started:
			done = true
		default:
		}
		running, err := children()
		if err != nil {
			return err
		}
		if done && len(running) == 0 {
			return nil
		}
		for _, child := range running {
			_ = child.Kill() // it may have exited already
		}
		<-tick.C
	}
}

// children returns the child processes of this process that have not been reaped. During a boot of envtest, all of them
// are envtest's.
func children() ([]*process.Process, error) {
	all, err := (&process.Process{Pid: int32(os.Getpid())}).Children()
	if err != nil && !errors.Is(err, process.ErrorNoChildren) {
		return nil, fmt.Errorf("list the processes of envtest: %w", err)
	}
	return all, nil
}

// freePort returns a free port of a loopback address. envtest would find one by itself, but does not tell which until
// it is up.
func freePort() (host, port string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return net.SplitHostPort(listener.Addr().String())
}

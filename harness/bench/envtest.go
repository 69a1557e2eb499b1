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

// bootEnvtest boots envtest with the flags that are its defaults.
func (p programs) bootEnvtest(ctx context.Context, dir string) (b boot, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	apiServerLog, err := os.Create(filepath.Join(dir, "kube-apiserver.log"))
	if err != nil {
		return boot{}, err
	}
	defer apiServerLog.Close()
	etcdLog, err := os.Create(filepath.Join(dir, "etcd.log"))
	if err != nil {
		return boot{}, err
	}
	defer etcdLog.Close()
	host, port, err := freePort()
	if err != nil {
		return boot{}, err
	}
	environment := &envtest.Environment{
		ControlPlane: envtest.ControlPlane{
			// The directories are named because envtest does not remove all of its own when a start fails.
			APIServer: &envtest.APIServer{
				Path: p.apiServer, CertDir: filepath.Join(dir, "kube-apiserver"), Out: apiServerLog, Err: apiServerLog,
				SecureServing: envtest.SecureServing{ListenAddr: envtest.ListenAddr{Address: host, Port: port}},
			},
			Etcd: &envtest.Etcd{Path: p.etcd, DataDir: filepath.Join(dir, "etcd"), Out: etcdLog, Err: etcdLog},
		},
		UseExistingCluster: new(false), // whatever the person's environment says
	}
	for _, dir := range []string{environment.ControlPlane.APIServer.CertDir, environment.ControlPlane.Etcd.DataDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return boot{}, err
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
		err = errors.Join(err, end(started), environment.WebhookInstallOptions.Cleanup())
		err = withLogs(err, etcdLog, apiServerLog)
	}()
	if err := readyz(ctx, net.JoinHostPort(host, port)); err != nil {
		return boot{}, err
	}
	b.ready = time.Since(start)
	select {
	case <-started:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return boot{}, context.Cause(ctx)
	}
	children, err := children()
	if err != nil {
		return boot{}, err
	}
	if len(children) != 2 {
		return boot{}, fmt.Errorf("envtest runs %d processes, not an API server and an etcd", len(children))
	}
	b.memory, err = memory(children...)
	return b, err
}

// end kills the processes that envtest has started, and starts, until it starts no more. Its own
// Stop would wait for an orderly end of what is thrown away, and its Start cannot be interrupted.
func end(started <-chan struct{}) error {
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
			_ = child.Kill() // it may have ended since
		}
		<-tick.C
	}
}

// children returns the processes that this one has started and not yet seen end. While envtest
// boots there are no others than its own.
func children() ([]*process.Process, error) {
	all, err := (&process.Process{Pid: int32(os.Getpid())}).Children()
	if err != nil && !errors.Is(err, process.ErrorNoChildren) {
		return nil, fmt.Errorf("list the processes of envtest: %w", err)
	}
	return all, nil
}

// freePort returns an address that nothing listens at. envtest finds its own the same way, but does
// not say which before it is up.
func freePort() (host, port string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return net.SplitHostPort(listener.Addr().String())
}

package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcd listens on Unix sockets, so that it takes no port and only the data directory's owner can connect.
// Their paths are relative to the working directory, which is the data directory: an absolute path could
// exceed the limit of about 100 bytes.
const (
	etcdClientSocket = "unix://etcd.sock"
	etcdPeerSocket   = "unix://etcd-peer.sock"
)

// startEtcd starts an etcd with one member in dir and returns once it can serve. If durable is false, it
// does not call fsync: its data then survives the death of the process, but not a power failure.
func startEtcd(ctx context.Context, dir string, durable bool) (_ *embed.Etcd, err error) {
	// etcd panics on some errors, such as a full disk.
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("start etcd in %s: %v", dir, reason)
		}
	}()
	client, err := url.Parse(etcdClientSocket)
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(etcdPeerSocket)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = !durable
	cfg.QuotaBackendBytes = 8 << 30 // the most that etcd recommends; with its default, 2 GiB, 20,000 Secrets of 100 KB are too many
	// A single member has nobody to wait for. With these, its first election is over within 125 ms instead of a second,
	// before the API server is configured. More ticks would make it shorter, and each costs CPU time for as long as etcd runs.
	cfg.TickMs, cfg.ElectionMs = 25, 125
	cfg.LogLevel = "error"
	cfg.LogOutputs = []string{"stderr"}

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", cfg.Dir, err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("etcd in %s: %w", cfg.Dir, err)
	case <-ctx.Done():
		e.Close()
		return nil, ctx.Err()
	}
}

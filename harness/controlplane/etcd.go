package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// The sockets are relative to the data directory, which is the process's working directory: a path
// of any length fits, no port is taken, and only the directory's owner can reach the database.
const (
	etcdClientSocket = "unix://etcd.sock"
	etcdPeerSocket   = "unix://etcd-peer.sock"
)

// startEtcd starts a one-member etcd in dir and returns once it has elected itself. With durable
// false it does not wait for the disk, which is safe against the death of the process, not against
// a power cut.
func startEtcd(ctx context.Context, dir string, durable bool) (_ *embed.Etcd, err error) {
	// It panics where others return an error, on a full disk for example.
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
	// One member needs no time to agree with others: these shorten the first election from a second.
	cfg.TickMs, cfg.ElectionMs = 10, 100
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

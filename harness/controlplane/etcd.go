package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"time"
	"unsafe"

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
	// before the API server is configured.
	cfg.TickMs, cfg.ElectionMs = 25, 125
	cfg.LogLevel = "error"
	cfg.LogOutputs = []string{"stderr"}

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", cfg.Dir, err)
	}
	select {
	case <-e.Server.ReadyNotify():
		slowTicks(e)
		return e, nil
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("etcd in %s: %w", cfg.Dir, err)
	case <-ctx.Done():
		e.Close()
		return nil, ctx.Err()
	}
}

// slowTicks lets etcd's clock tick once a second, after the election. A tick lets a leader send heartbeats and count who
// answers, and a single member has nobody for either. A leader that has not ticked for a while also asks itself whether it still
// leads before it ends an etcd lease, which costs it a read. Forty ticks a second were a tenth of the CPU time of an idle control
// plane.
func slowTicks(e *embed.Etcd) {
	if ticker := tickerOf(e); ticker != nil {
		ticker.Reset(time.Second)
	}
}

// tickerOf returns the ticker of etcd's server, for which etcd has no setting; nil if there is no such field any more.
func tickerOf(e *embed.Etcd) *time.Ticker {
	raft := reflect.ValueOf(e.Server).Elem().FieldByName("r")
	if !raft.IsValid() || raft.Kind() != reflect.Struct {
		return nil
	}
	field := raft.FieldByName("ticker")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*time.Ticker]() {
		return nil
	}
	return *(**time.Ticker)(unsafe.Pointer(field.UnsafeAddr()))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // metrics of the client
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // metrics of the queue
	"k8s.io/klog/v2"
)

// serve serves metrics and probes while work runs, and returns when both have ended.
func (s *server) serve(ctx context.Context, ready func() bool, collectors []prometheus.Collector, work func(context.Context) error) error {
	for _, collector := range collectors {
		legacyregistry.RawMustRegister(collector)
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("serve metrics at --address %s: %w", s.address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", legacyregistry.Handler())
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "caches not synced, or shutting down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	klog.FromContext(ctx).Info("Starting", "metrics", "http://"+listener.Addr().String()+"/metrics")
	err = errors.Join(work(ctx), server.Close())
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

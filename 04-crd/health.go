package crd

import (
	"fmt"
	"net/http"
)

// Healthz responds with 200 as long as the process serves HTTP.
func (c *Controller) Healthz(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// Readyz responds with 200 while the workers run: from the first cache sync until shutdown begins. Otherwise with 503.
func (c *Controller) Readyz(w http.ResponseWriter, _ *http.Request) {
	if !c.ready.Load() {
		http.Error(w, "caches not synced, or shutting down", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

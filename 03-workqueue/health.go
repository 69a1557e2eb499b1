package workqueue

import (
	"fmt"
	"net/http"
)

// Healthz is the liveness probe: it succeeds as long as the process can answer.
func (c *Controller) Healthz(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// Readyz is the readiness probe: it succeeds from the time the caches have synced until shutdown begins.
func (c *Controller) Readyz(w http.ResponseWriter, _ *http.Request) {
	if !c.ready.Load() {
		http.Error(w, "caches not synced, or shutting down", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

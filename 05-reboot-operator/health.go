package reboot

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// Readyz is the readiness probe: it succeeds from the time the caches have synced until shutdown begins. A controller that
// waits for its Lease is not ready.
func (c *Controller) Readyz(w http.ResponseWriter, _ *http.Request) { readyz(w, &c.ready) }

// Readyz is the readiness probe: it succeeds from the time the cache has synced until shutdown begins.
func (a *Agent) Readyz(w http.ResponseWriter, _ *http.Request) { readyz(w, &a.ready) }

func readyz(w http.ResponseWriter, ready *atomic.Bool) {
	if !ready.Load() {
		http.Error(w, "caches not synced, or shutting down", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

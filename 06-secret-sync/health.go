package secretsync

import (
	"fmt"
	"net/http"
	"time"
)

// Readyz is the readiness probe: it succeeds from the time the caches have synced until shutdown begins, whatever the state
// of the copies. It also shows when the watches last delivered something: an old event is a sign of a quiet cluster or of a
// dead watch, and only a person can tell which. A controller that waits for its Lease is not ready.
func (c *Controller) Readyz(w http.ResponseWriter, _ *http.Request) {
	if !c.ready.Load() {
		http.Error(w, "caches not synced, or shutting down", http.StatusServiceUnavailable)
		return
	}
	last := c.lastEvent.Load()
	if last == nil {
		fmt.Fprintln(w, "ok; no event yet")
		return
	}
	fmt.Fprintf(w, "ok; last event %s ago\n", time.Since(*last).Round(time.Second))
}

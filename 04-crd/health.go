package crd

import (
	"fmt"
	"net/http"
)

// Healthz answers whether the program can still answer.
func (c *Controller) Healthz(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// Readyz answers whether the caches are filled and the workers at work.
func (c *Controller) Readyz(w http.ResponseWriter, _ *http.Request) {
	if !c.ready.Load() {
		http.Error(w, "not in step with the API server", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

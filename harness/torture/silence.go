package torture

import (
	"fmt"
	"sync"
	"time"
)

// SilentError is the error of a controller that has been started and does not make a single request to the API
// server that it was given. It has not been put to torture at all, so there is nothing to judge: most likely it looks
// for its kubeconfig elsewhere.
type SilentError struct {
	After time.Duration // since its start
	tail  string        // of its log
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("%s after its start, the controller has made no request through the proxy. It must use the kubeconfig that it is "+
		"given: put {kubeconfig} in its arguments, or have it read KUBECONFIG; %s", e.After.Round(time.Second), e.tail)
}

// silenceLimit is how long after its start a controller must have made its first request. It is far more than a
// busy machine needs to start a program.
const silenceLimit = 20 * time.Second

// contact is a start of the controller.
type contact struct {
	mu      sync.Mutex
	at      time.Time
	arrived int64 // requests that had come until then
}

// begin notes that the controller is being started.
func (r *run) begin() {
	arrived := r.arrived()
	r.since.mu.Lock()
	defer r.since.mu.Unlock()
	r.since.at, r.since.arrived = time.Now(), arrived
}

// arrived is how many requests have come through the proxies.
func (r *run) arrived() int64 {
	count := r.proxy.Arrived()
	for _, o := range r.outside {
		count += o.proxy.Arrived()
	}
	return count
}

// silence returns a [SilentError] if the controller was started longer ago than limit, still runs, and has not made
// a request since.
func (r *run) silence(limit time.Duration) error {
	if r.proxy == nil || r.controller == nil || !r.controller.isRunning() {
		return nil
	}
	arrived := r.arrived()
	r.since.mu.Lock()
	defer r.since.mu.Unlock()
	if after := time.Since(r.since.at); arrived == r.since.arrived && after > limit {
		return &SilentError{After: after, tail: tail(r.controller.Log())}
	}
	return nil
}

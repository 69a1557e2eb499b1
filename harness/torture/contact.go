package torture

import (
	"fmt"
	"sync"
	"time"
)

// SilentError is the error of a controller that has been started and sends no request to the API server that it was
// given. There is nothing to judge then: most likely it reads another kubeconfig.
type SilentError struct {
	After time.Duration // since its start
	tail  string        // of its log
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("%s after its start, the controller has sent no request through the proxy. It must use the kubeconfig that it is "+
		"given: put {kubeconfig} in its arguments, or have it read KUBECONFIG; %s", e.After.Round(time.Second), e.tail)
}

// silenceLimit is how long after its start a controller must have sent its first request. It is far more than a busy
// machine needs to start a program.
const silenceLimit = 20 * time.Second

// contact is the latest start of the controller.
type contact struct {
	mu      sync.Mutex
	at      time.Time
	arrived int64 // requests that had arrived at the proxies by then
}

// noteStart notes that the controller is being started.
func (r *run) noteStart() {
	arrived := r.arrived()
	r.contact.mu.Lock()
	defer r.contact.mu.Unlock()
	r.contact.at, r.contact.arrived = time.Now(), arrived
}

// arrived returns how many requests have arrived at the proxies.
func (r *run) arrived() int64 {
	count := r.proxy.Arrived()
	for _, o := range r.outside {
		count += o.proxy.Arrived()
	}
	return count
}

// checkContact returns a [SilentError] if the controller was started longer ago than limit, still runs, and has not sent
// a request since.
func (r *run) checkContact(limit time.Duration) error {
	if r.proxy == nil || r.controller == nil || !r.controller.isRunning() {
		return nil
	}
	arrived := r.arrived()
	r.contact.mu.Lock()
	defer r.contact.mu.Unlock()
	if after := r.elapsed(r.contact.at); arrived == r.contact.arrived && after > limit {
		return &SilentError{After: after, tail: tail(r.controller.Log())}
	}
	return nil
}

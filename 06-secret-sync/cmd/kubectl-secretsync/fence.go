package main

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// fence refuses the writes of a leader that cannot know whether it still leads. When its machine has hung, its elector notices
// only at the next renewal. Until then, its caches may be of different times: one watch has delivered the copies that the next
// leader has written, and another not yet the change of the source that they were written for. It would write them back.
//
// No check in a client is complete: the machine may hang after it. The time in which that can happen is short.
type fence struct {
	until atomic.Pointer[time.Time] // the Lease is held until then; nil if there is no Lease
}

var errFenced = errors.New("the Lease may be another controller's by now")

// wrap is for [rest.Config.Wrap].
func (f *fence) wrap(next http.RoundTripper) http.RoundTripper { return fenced{next, f} }

type fenced struct {
	next  http.RoundTripper
	fence *fence
}

// RoundTrip implements [http.RoundTripper].
func (t fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	until, now := t.fence.until.Load(), time.Now()
	isLease := strings.Contains(r.URL.Path, "/apis/coordination.k8s.io/")
	// The monotonic clock stands still while a machine is suspended, and the wall clock may be set back.
	if until == nil || r.Method == http.MethodGet || isLease || now.Before(*until) && now.Round(0).Before(until.Round(0)) {
		return t.next.RoundTrip(r)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, errFenced
}

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
	until atomic.Pointer[clocks] // the Lease is held until then; nil if there is no Lease
}

// clocks is a moment by both clocks. The monotonic one stands still while a machine is suspended, and the wall clock may be set back.
type clocks struct{ monotonic, wall time.Time }

// hold says until when the Lease is held; the zero time if it is not.
func (f *fence) hold(until time.Time) { f.until.Store(&clocks{until, until.Round(0)}) }

// holds reports whether the Lease is certainly held at a moment, or there is none.
func (f *fence) holds(now time.Time) bool {
	until := f.until.Load()
	return until == nil || now.Before(until.monotonic) && now.Round(0).Before(until.wall)
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
	isLease := strings.Contains(r.URL.Path, "/apis/coordination.k8s.io/")
	if r.Method == http.MethodGet || isLease || t.fence.holds(time.Now()) {
		return t.next.RoundTrip(r)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, errFenced
}

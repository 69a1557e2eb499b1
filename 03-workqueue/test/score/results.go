package main

import (
	"time"

	"example.com/controllers/harness/history"
)

// results are what was measured, and under which conditions.
type results struct {
	Kubernetes    string // version
	System        string // "linux/amd64"
	CPUs, Nodes   int
	Pods          int           // of each frontend
	Changes       int           // plain ones; there are two more
	Quiet, Window time.Duration // of the rest, and of each size of the growth
	Interval      string        // of lesson 1
	Lessons       []score
}

// score is what was measured of one lesson.
type score struct {
	Title string

	// Of the whole scenario.
	Costs        []history.Cost // all requests, by verb and resource
	Writes       int            // also those that failed; not those of Events
	NoOps        int            // of the writes, those that changed nothing
	FailedWrites int
	EventWrites  int

	Rest  rate            // a quiet time with the frontend of the scenario
	Times []time.Duration // of the plain changes that were not lost: until the last old Pod was being deleted

	Changes, Lost int // of all changes
	Old, Replaced int // Pods that had to be replaced, and those that were

	Growth []point // by number of Pods
}

// rate is what a minute costs.
type rate struct {
	Requests float64
	KB       float64 // received, of 1000 bytes
}

// point is a rest with a number of Pods.
type point struct {
	Pods  int
	Rest  rate
	Costs []history.Cost // from the start of the controller to its end
}

// count fills in what a recording says of the whole scenario.
func (s *score) count(h *history.History) {
	s.Costs = h.Cost()
	for _, write := range h.Writes() {
		if write.Resource == "events" {
			s.EventWrites++
			continue
		}
		s.Writes++
		if write.Failed() {
			s.FailedWrites++
		}
		if write.NoOp {
			s.NoOps++
		}
	}
}

// requests counts requests by verb, or all of them with "".
func (s score) requests(verb string) (count int) {
	for _, c := range s.Costs {
		if verb == "" || c.Verb == verb {
			count += c.Requests
		}
	}
	return count
}

// received returns the bytes that were received.
func (s score) received() (bytes int64) {
	for _, c := range s.Costs {
		bytes += c.Received
	}
	return bytes
}

// perMinute returns what a recording says of a time, scaled to a minute.
func perMinute(h *history.History, from, to time.Time) rate {
	var r rate
	for _, c := range h.Between(from, to).Cost() {
		r.Requests += float64(c.Requests)
		r.KB += float64(c.Received) / 1000
	}
	minutes := to.Sub(from).Minutes()
	return rate{Requests: r.Requests / minutes, KB: r.KB / minutes}
}

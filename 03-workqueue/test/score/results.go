package main

import (
	"time"

	"example.com/controllers/harness/history"
)

// results are the measurements and their conditions.
type results struct {
	Kubernetes    string // version
	System        string // "linux/amd64"
	CPUs, Nodes   int
	Pods          int           // of each frontend
	Changes       int           // plain ones; two more are measured
	Quiet, Window time.Duration // how long the idle controllers are measured: in the scenario, and with each size of growth
	Interval      string        // of lesson 1
	Lessons       []score
}

// score holds the measurements of one lesson.
type score struct {
	Title string

	// Of the whole scenario.
	Costs        []history.Cost // all requests, by verb and resource
	Writes       int            // failed ones included, those of Events not
	NoOps        int            // of the writes, those that changed nothing
	FailedWrites int
	EventWrites  int

	Rest  rate            // while idle, with the frontend of the scenario
	Times []time.Duration // of each plain change that was not lost, until the last old Pod was being deleted

	Changes, Lost int // of all changes
	Old, Replaced int // Pods that had to be replaced, and those that were

	Growth []point // by number of Pods
}

// rate is the cost per minute.
type rate struct {
	Requests float64
	KB       float64 // received; 1000 bytes each
}

// point is the cost of an idle controller with a number of Pods.
type point struct {
	Pods  int
	Rest  rate
	Costs []history.Cost // from the start of the controller to its exit
}

// count fills in the requests of the whole scenario from a recording.
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

// perMinute returns the cost of an interval of a recording, per minute.
func perMinute(h *history.History, from, to time.Time) rate {
	var r rate
	for _, c := range h.Between(from, to).Cost() {
		r.Requests += float64(c.Requests)
		r.KB += float64(c.Received) / 1000
	}
	minutes := to.Sub(from).Minutes()
	return rate{Requests: r.Requests / minutes, KB: r.KB / minutes}
}

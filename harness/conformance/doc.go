// Package conformance holds the tests that the embedded control plane behaves as a real cluster does:
// what a lesson shows on it must be true anywhere. There is nothing in it but tests.
//
// They share one cluster ([example.com/controllers/harness/cluster.Shared]) with each other and with
// whoever else uses it, so each has a namespace of its own, and machines of its own to break. They
// wait for what should come to be, never for a time to pass.
package conformance

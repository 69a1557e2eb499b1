// Package test tests lesson 5 against a real API server, with simulated machines.
package test

// Package test tests lesson 1 against a real API server.
package test

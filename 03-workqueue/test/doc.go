// Package test tests lesson 3 against a real API server.
package test

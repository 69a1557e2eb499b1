// Package test tests lesson 2 against a real API server.
package test

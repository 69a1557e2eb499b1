// Package test tests lesson 4 against a real API server.
package test

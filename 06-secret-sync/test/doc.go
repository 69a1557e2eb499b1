// Package test tests lesson 6 against a real API server.
package test

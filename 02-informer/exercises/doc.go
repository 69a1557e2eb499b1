// Package exercises tests lesson 2 against a real API server.
package exercises

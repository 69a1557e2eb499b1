// Package exercises tests lesson 3 against a real API server.
package exercises

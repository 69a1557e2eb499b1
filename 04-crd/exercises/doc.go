// Package exercises tests lesson 4 against a real API server.
package exercises

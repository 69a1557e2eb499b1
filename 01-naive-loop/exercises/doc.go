// Package exercises tests lesson 1 against a real API server. The exercises stand beside it.
package exercises

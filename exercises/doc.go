// Package exercises has the test that proves the exercises: each fails as shipped, for the reason that it names, and each
// solution passes.
package exercises

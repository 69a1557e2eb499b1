// Package suite divides the tests between "make test", which a person runs and which takes minutes, and what
// "make test-all" runs beyond it, with the race detector.
//
//   - Each test is run by one of them at least. "make test-all" fails if both have skipped one for the other's sake.
//   - A test that says nothing is run by both, if its package is among those of "make test".
package suite

import (
	"os"
	"testing"
)

// AfterVariable is the name of an environment variable that says that "make test" has been run: its value is then "1".
const AfterVariable = "WORKSHOP_AFTER_MAKE_TEST"

// Left begins the message with which a test is skipped that "make test" leaves to "make test-all".
const Left = "left to make test-all: "

// Done is the message with which a test is skipped that "make test" has run, and "make test-all" does not repeat.
const Done = "make test has run it"

// Long leaves a test to "make test-all", and says why: "go test -short" skips it. "make test" sets that flag.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip(Left + why)
	}
}

// Once is for a test that only runs other programs, so that the race detector sees nothing of it. After "make test" has
// run it, it is skipped.
func Once(t testing.TB) {
	t.Helper()
	if Ran() {
		t.Skip(Done)
	}
}

// Ran reports whether "make test" has run what it runs, and this is the rest.
func Ran() bool { return os.Getenv(AfterVariable) == "1" }

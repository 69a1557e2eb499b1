package test

import (
	"testing"

	"example.com/controllers/harness/mutants/mutantstest"
)

// Some bugs cannot be seen by torture, and each patch in mutants/unit says why, in the line that begins with "Unseen:".
func TestUnitTestsCatchMutants(t *testing.T) {
	mutantstest.UnitTests(t, "..", "mutants/unit")
}

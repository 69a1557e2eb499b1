package play

import (
	"testing"
	"time"
)

// WaitForDaemons changes how long the end of a page waits for daemons, until the test is over.
func WaitForDaemons(t *testing.T, d time.Duration) {
	before := daemonsTime
	daemonsTime = d
	t.Cleanup(func() { daemonsTime = before })
}

package exercise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// On a busy machine, a check may take longer than its limit. One that never ends is ended after it.
func TestIsStarved(t *testing.T) {
	for _, test := range []struct {
		name string
		used time.Duration
		want bool
	}{
		{"waits", 0, false},
		{"waits, and its runtime works", 50 * time.Millisecond, false},
		{"gets little processor time", time.Second, true},
		{"is in an endless loop", 20 * time.Second, false},
		{"is in an endless loop on a busy machine", 11 * time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, isStarved(test.used, 20*time.Second)) })
	}
}

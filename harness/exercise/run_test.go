package exercise

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// However little processor time a program gets, and however regularly, it is ended after a few times its limit.
func TestAwaitLimit(t *testing.T) {
	const limit = 20 * time.Second
	for name, test := range map[string]struct {
		used []time.Duration // in each limit; the last one is repeated
		err  error
		want time.Duration
	}{
		"it waits":                    {used: []time.Duration{0}, want: limit},
		"it computes":                 {used: []time.Duration{limit}, want: limit},
		"it is starved, then waits":   {used: []time.Duration{time.Second, time.Second, 0}, want: 3 * limit},
		"it is starved for ever":      {used: []time.Duration{time.Second}, want: patience * limit},
		"nobody knows what it uses":   {err: errors.New("no such process"), want: limit},
		"it computed, and is starved": {used: []time.Duration{limit, time.Second}, want: limit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var used time.Duration
				start, left := time.Now(), test.used
				allowed, reached := awaitLimit(t.Context(), limit, func() (time.Duration, error) {
					if test.err == nil {
						used += left[0]
						left = left[min(1, len(left)-1):]
					}
					return used, test.err
				})
				require.True(t, reached)
				require.Equal(t, test.want, allowed)
				require.Equal(t, test.want, time.Since(start))
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, reached := awaitLimit(ctx, limit, func() (time.Duration, error) { return 0, nil })
	require.False(t, reached)
}

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

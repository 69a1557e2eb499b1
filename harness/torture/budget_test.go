package torture

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Plans begin until the end of a budget or, as soon as something has failed, until two thirds of it.
func TestBudget(t *testing.T) {
	for name, c := range map[string]struct {
		failsAfter, want time.Duration
	}{
		"without a failure":  {0, 6 * time.Minute},
		"an early failure":   {time.Second, 4 * time.Minute},
		"a late failure":     {5 * time.Minute, 5 * time.Minute},
		"at the last moment": {6*time.Minute - 1, 6*time.Minute - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, b := time.Now(), newBudget(6*time.Minute)
				defer b.stop()
				if c.failsAfter > 0 {
					time.AfterFunc(c.failsAfter, b.failed)
				}
				<-b.ended()
				require.Equal(t, c.want, time.Since(from))
				require.Equal(t, 6*time.Minute-c.want, b.left())
				b.failed() // again
			})
		})
	}
}

func TestNoBudget(t *testing.T) {
	b := newBudget(0)
	b.failed()
	b.stop()
	require.Nil(t, b.ended())
	require.Positive(t, b.left())
}

package gc

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// settings returns the process's GOGC, MaxUint64 if the collector is off, and its memory limit in bytes.
func settings() (percent, limit uint64) {
	samples := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

const off = math.MaxUint64

func restore(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

func TestDefer(t *testing.T) {
	restore(t)
	t.Setenv("GOGC", "") // restores it after the test
	require.NoError(t, os.Unsetenv("GOGC"))
	synctest.Test(t, func(t *testing.T) {
		resume := Defer()
		time.Sleep(time.Hour) // however long the start takes
		percent, limit := settings()
		require.Equal(t, uint64(startPercent), percent)
		require.Equal(t, uint64(Limit), limit)
		resume()
		percent, limit = settings()
		require.Equal(t, uint64(startPercent), percent, "before the start has settled")
		require.Equal(t, uint64(Limit), limit)
		time.Sleep(settle)
		synctest.Wait()
		percent, limit = settings()
		require.Equal(t, uint64(usualPercent), percent)
		require.Equal(t, uint64(math.MaxInt64), limit)
	})
}

// With GOGC, the collector stays off until the memory limit has made it run once.
func TestDeferWithGOGC(t *testing.T) {
	restore(t)
	debug.SetGCPercent(200) // as the runtime does at the start of the process
	t.Setenv("GOGC", "200")
	resume := Defer()
	resume()
	percent, limit := settings()
	require.Equal(t, uint64(off), percent)
	require.Equal(t, uint64(Limit), limit)
	require.Eventually(t, func() bool {
		runtime.GC()
		percent, limit = settings()
		return percent == 200 && limit == math.MaxInt64
	}, time.Minute, time.Millisecond)
}

// A limit that the process was given stays, if it is lower.
func TestDeferKeepsALowerLimit(t *testing.T) {
	restore(t)
	debug.SetMemoryLimit(Limit / 2)
	Defer()
	_, limit := settings()
	require.Equal(t, uint64(Limit/2), limit)
}

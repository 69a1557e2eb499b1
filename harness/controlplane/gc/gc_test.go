package gc

import (
	"context"
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

func TestTune(t *testing.T) {
	restore(t)
	t.Setenv("GOGC", "") // restores it after the test
	require.NoError(t, os.Unsetenv("GOGC"))
	synctest.Test(t, func(t *testing.T) {
		percentAfter := func(d time.Duration) int {
			time.Sleep(d)
			synctest.Wait()
			percent, _ := settings()
			return int(percent)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ready := Tune(ctx)
		require.Equal(t, startPercent, percentAfter(time.Minute), "however long the start takes")
		_, limit := settings()
		require.Equal(t, uint64(math.MaxInt64), limit, "no limit: a start on thousands of Nodes would do nothing but collect")
		ready()
		require.Equal(t, startPercent, percentAfter(0), "before the start has settled")
		require.Equal(t, restPercent, percentAfter(settle))
		require.Equal(t, restPercent, percentAfter(look), "at rest")
		for range 2 {
			sink = make([]byte, work)
			runtime.GC() // so that no more than this is in use
			require.Equal(t, startPercent, percentAfter(look), "at work")
			require.Equal(t, restPercent, percentAfter(look), "at rest again")
		}
		cancel()
		synctest.Wait()
		sink = make([]byte, work)
		require.Equal(t, restPercent, percentAfter(look), "it has ended")
	})
}

var sink []byte // keeps an allocation from being optimized away

func TestWorkPercent(t *testing.T) {
	require.Equal(t, startPercent, workPercent(startSpare, 80<<20), "a start on 20 Nodes")
	require.Equal(t, 192, workPercent(startSpare, 200<<20))
	require.Equal(t, 100, workPercent(startSpare, 1<<30), "a start on thousands of Nodes")
}

func TestPercentFor(t *testing.T) {
	for name, test := range map[string]struct {
		allocated, live uint64
		want            int
	}{
		"at rest":                   {work - 1, 80 << 20, restPercent},
		"at work":                   {work, 64 << 20, 200},
		"at work, a small heap":     {work, 10 << 20, startPercent},
		"at work, a large heap":     {work, 1 << 30, 100},
		"before a first collection": {work, 0, startPercent},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, percentFor(test.allocated, test.live)) })
	}
}

// With GOGC, the collector stays off until the memory limit has made it run once.
func TestTuneWithGOGC(t *testing.T) {
	restore(t)
	debug.SetGCPercent(200) // as the runtime does at the start of the process
	t.Setenv("GOGC", "200")
	Tune(t.Context())
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
func TestTuneKeepsALowerLimit(t *testing.T) {
	restore(t)
	t.Setenv("GOGC", "100")
	debug.SetMemoryLimit(Limit / 2)
	Tune(t.Context())
	_, limit := settings()
	require.Equal(t, uint64(Limit/2), limit)
	require.Eventually(t, func() bool {
		runtime.GC()
		percent, limit := settings()
		return percent == 100 && limit == Limit/2
	}, time.Minute, time.Millisecond)
}

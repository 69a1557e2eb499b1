// Package gc sets Go's garbage collector for a control plane, differently for its start and for the time after that.
package gc

import (
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// startPercent is the GOGC of the start. Most of what is allocated then stays in use, so collecting garbage as usual would be
// a quarter of its CPU time. Collecting none would leave what stays in use strewn among what does not, and 35 MB more resident for
// good.
const startPercent = 300

// usualPercent is the GOGC of a control plane that has been told none. It is less than Go's own, 100: on a laptop, memory is
// scarcer than CPU time.
const usualPercent = 50

// settle is how long after the start its garbage is collected. What comes right after the start is what people wait for.
const settle = 3 * time.Second

// Limit is the memory, in bytes, above which garbage is collected all the same. A start on a large database may exceed it.
const Limit = 512 << 20

// Defer lets the garbage collector run less often until the start has settled, which is some time after resume is called.
//
// With the environment variable GOGC, the process should rather save CPU time than memory, so garbage is first collected at
// Limit, which a control plane that runs for a single test may never reach. GOGC is the percentage from then on.
func Defer() (resume func()) {
	usualLimit := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(usualLimit, Limit))
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(startPercent)
		return func() {
			time.AfterFunc(settle, func() {
				debug.SetGCPercent(usualPercent)
				debug.SetMemoryLimit(usualLimit)
				debug.FreeOSMemory() // collects the garbage of the start
			})
		}
	}
	percent := debug.SetGCPercent(-1)
	return func() {
		type garbage [64]byte
		runtime.AddCleanup(new(garbage), func(struct{}) { // after the first collection
			debug.SetGCPercent(percent)
			debug.SetMemoryLimit(usualLimit)
		}, struct{}{})
	}
}

// Package gc turns Go's garbage collector off while the control plane starts: most of what is allocated then stays in use,
// and collecting garbage would be a fifth of the CPU time of the start.
package gc

import (
	"os"
	"runtime"
	"runtime/debug"
)

// Limit is the memory, in bytes, above which garbage is collected all the same. A start on a large database may exceed it.
const Limit = 512 << 20

// usualPercent is the GOGC of a control plane that has been told none. It is less than Go's own, 100: on a laptop, memory is
// scarcer than CPU time.
const usualPercent = 50

// Defer turns the garbage collector off, up to Limit, until resume is called.
//
// With the environment variable GOGC, the process should rather save CPU time than memory, so resume does not collect
// garbage itself: that would be as much work as a third of the start. The first collection comes at Limit, which a control
// plane that runs for a single test may never reach, and GOGC is the percentage from then on.
func Defer() (resume func()) {
	usualLimit := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(usualLimit, Limit))
	percent := debug.SetGCPercent(-1)
	if os.Getenv("GOGC") == "" {
		return func() {
			debug.SetGCPercent(usualPercent)
			debug.SetMemoryLimit(usualLimit)
			debug.FreeOSMemory() // collects the garbage of the start
		}
	}
	return func() {
		type garbage [64]byte
		runtime.AddCleanup(new(garbage), func(struct{}) { // after the first collection
			debug.SetGCPercent(percent)
			debug.SetMemoryLimit(usualLimit)
		}, struct{}{})
	}
}

// Package gc sets Go's garbage collector for a control plane, which is at work for seconds and then at rest for minutes.
package gc

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// startPercent is the GOGC of the start. Most of what is allocated then stays in use, so collecting garbage as usual would be
// a quarter of its CPU time. Collecting none would leave what stays in use strewn among what does not, and 35 MB more resident for
// good.
const startPercent = 300

// restPercent is the GOGC at rest. It is less than Go's own, 100: on a laptop, memory is scarcer than CPU time, and at rest there is
// little to collect.
const restPercent = 50

const (
	// look is how often it is determined whether the control plane is at work.
	look = time.Second
	// work is how many bytes are allocated between two looks by a control plane at work. One with 200 Nodes at rest allocates 4 MB.
	work = 16 << 20
	// spare is about how many bytes of garbage there are while it is at work. Of a small heap, it is less, and of a large one as much
	// as is in use, as usual in Go.
	spare = 128 << 20
	// startSpare is the same for the start, of which most stays in use.
	startSpare = 3 * spare
)

// settle is how long after the start its garbage is collected. What comes right after the start is what people wait for.
const settle = 3 * time.Second

// Limit is the memory, in bytes, at which garbage is collected for the first time with the environment variable GOGC.
const Limit = 512 << 20

// Tune lets the garbage collector run less often until the start has settled, which is some time after ready is called, and from
// then on while the control plane is at work: as often as at rest, it would take a quarter of the CPU time. It ends with ctx.
//
// With the environment variable GOGC, the process should rather save CPU time than memory, so garbage is first collected at
// Limit, which a control plane that runs for a single test may never reach. From then on, GOGC is the percentage, and the limit is
// the usual one again: a process that needs more than its limit does nothing but collect.
func Tune(ctx context.Context) (ready func()) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(startPercent)
		settled := make(chan struct{})
		go follow(ctx, settled)
		return func() { time.AfterFunc(settle, func() { close(settled) }) }
	}
	usualLimit := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(usualLimit, Limit))
	percent := debug.SetGCPercent(-1)
	type garbage [64]byte
	runtime.AddCleanup(new(garbage), func(struct{}) { // after the first collection
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(usualLimit)
	}, struct{}{})
	return func() {}
}

// follow sets GOGC to what the control plane does, until ctx is done.
func follow(ctx context.Context, settled <-chan struct{}) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	var before uint64
	current := startPercent
	set := func(percent int) {
		if percent != current {
			debug.SetGCPercent(percent)
			current = percent
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-settled:
			settled = nil
			set(restPercent)
			debug.FreeOSMemory() // collects the garbage of the start
			metrics.Read(samples)
		case <-time.After(look):
			metrics.Read(samples)
			allocated, live := samples[0].Value.Uint64()-before, samples[1].Value.Uint64()
			if settled != nil {
				set(workPercent(startSpare, live))
			} else {
				set(percentFor(allocated, live))
			}
		}
		before = samples[0].Value.Uint64()
	}
}

// percentFor returns the GOGC, given how many bytes were allocated since the last look, and how many were in use after the last
// collection.
func percentFor(allocated, live uint64) int {
	if allocated < work {
		return restPercent
	}
	return workPercent(spare, live)
}

// workPercent returns the GOGC with which there are about as many bytes of garbage as spare, when live are in use.
func workPercent(spare, live uint64) int {
	return int(min(max(spare*100/max(live, 1), 100), startPercent))
}

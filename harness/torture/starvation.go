package torture

import (
	"context"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
)

// processorUse is how processors have been used until now.
type processorUse struct {
	// threads are those of this process and its descendants, by ID; none where the system does not say.
	threads map[int]processorTime
	idle    time.Duration // of all processors together, since the machine started
}

// processorTime is how the scheduler has treated a thread since it started.
type processorTime struct {
	ran    time.Duration // it was on a processor
	waited time.Duration // it could have run, but there was no processor
}

// readProcessorUse returns how the processors of this machine have been used.
func readProcessorUse(ctx context.Context) processorUse {
	use := processorUse{threads: processorTimes()}
	if times, err := cpu.TimesWithContext(ctx, false); err == nil && len(times) > 0 {
		use.idle = time.Duration(times[0].Idle * float64(time.Second))
	}
	return use
}

// The parts of the processor time that must have been left over: spare, for us not to count as short of it, and room, for another
// run to begin.
const spare, room = 0.15, 0.08

// hasSpare reports whether this part of the processor time was left over between two uses. Threads wait for a processor even then,
// many of them at a time when they wake up at the same moment, but not for long.
func hasSpare(before, after processorUse, elapsed time.Duration, spare float64) bool {
	ran := ranAndWaited(before, after).ran
	return part(after.idle-before.idle, elapsed, runtime.NumCPU()) > spare &&
		part(ran, elapsed, runtime.GOMAXPROCS(0)) < 1-spare // a container may have only some of the machine's processors
}

// part returns which part of the time of so many processors a time is.
func part(of, elapsed time.Duration, processors int) float64 {
	return of.Seconds() / (elapsed.Seconds() * float64(processors))
}

// maxStarved limits [starved] and [slowed], so that patience ends on any machine.
const maxStarved = 5. / 6

// starved returns the fraction of the time between two uses in which our threads waited for a processor. It is zero if
// there was processor time to spare, or if they ran for longer than they waited, as on a machine that is merely busy.
func starved(before, after processorUse, elapsed time.Duration) float64 {
	if all := ranAndWaited(before, after); all.waited <= all.ran {
		return 0
	}
	return slowed(before, after, elapsed)
}

// slowed is like [starved], but also on a machine that is merely busy.
func slowed(before, after processorUse, elapsed time.Duration) float64 {
	all := ranAndWaited(before, after)
	if all.waited == 0 || hasSpare(before, after, elapsed, spare) {
		return 0
	}
	return min(maxStarved, float64(all.waited)/float64(all.ran+all.waited))
}

// ranAndWaited returns what our threads did between two uses.
func ranAndWaited(before, after processorUse) (all processorTime) {
	for id, now := range after.threads {
		was := before.threads[id]
		if now.ran < was.ran || now.waited < was.waited { // another thread has that ID now
			was = processorTime{}
		}
		all.ran += now.ran - was.ran
		all.waited += now.waited - was.waited
	}
	return all
}

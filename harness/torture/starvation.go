package torture

import "time"

// processorTime is how the scheduler has treated a thread since it started.
type processorTime struct {
	ran    time.Duration // it was on a processor
	waited time.Duration // it could have run, but there was no processor
}

// maxStarved limits [starved], so that patience ends on any machine.
const maxStarved = 5. / 6

// starved returns the fraction of the time between two samples, by thread ID, in which the threads waited for a
// processor. It is zero if they ran for longer than they waited, as on a machine that is merely busy.
func starved(before, after map[int]processorTime) float64 {
	var all processorTime
	for id, now := range after {
		was := before[id]
		if now.ran < was.ran || now.waited < was.waited { // another thread has that ID now
			was = processorTime{}
		}
		all.ran += now.ran - was.ran
		all.waited += now.waited - was.waited
	}
	if all.waited <= all.ran {
		return 0
	}
	return min(maxStarved, float64(all.waited)/float64(all.ran+all.waited))
}
